//! Byte tables: a lower bound on what a vector's sum lacks, in steps, and how much it may lack.
//!
//! A table sum takes one entry from each table. Compared with the sum of all tables' maxima, `best`, it lacks Σ_m
//! (max_m − T_m[code m]). The byte table holds this lack in whole steps, rounded down and at most 255, so
//!
//! > step · Σ_m bytes_m[code m] ≤ Σ_m (max_m − T_m[code m]) = best − sum
//!
//! and a vector whose bytes sum to more than (best − need) / step cannot have a sum of `need`. Nothing else is
//! concluded from the bytes: the remaining vectors are scored. The step follows the floor, so that 255 steps always
//! span just what a vector may lack: the higher the floor, the finer the bytes.
//!
//! **The sum a score needs.** To score φ, the sum S of the table entries alone, in real numbers, must be at least
//! need_b(φ), where b is the byte of the vector's last column, if there is one, and β the probe's base:
//!
//! | | score | need |
//! |---|---|---|
//! | none | β + S | φ − β |
//! | scale | (β + S) · s | φ / s_b − β |
//! | bias | (β + S) + v, v ≤ e_{b+1} | φ − e_{b+1} − β |
//! | exact | what a [`Measure`](super::adjust::Measure) says | its need, less β |
//!
//! With `least` the smallest need over all bytes, the excess over it is a lack like the others, and gets a byte table
//! of its own: `extra_b` = (need_b − least) / step, rounded down. A vector that reaches φ has S ≥ need_b, and
//!
//! > Σ_m bytes_m + extra_b ≤ (best − S) / step + (need_b − least) / step ≤ (best − least) / step
//!
//! **Segments.** Neither `best` nor the tables' bytes depend on base, levels or φ, except through the step. Any step is
//! sound for any of them: so they are kept from one segment to the next as long as 160 to 255 steps span the lack, and
//! only the 256 bytes of the last column are recomputed.
//!
//! **Many tables.** Each byte is rounded down, by half a step on average: with M tables, M / 2 of the 254 steps are
//! lost, and with 64 tables few vectors would be discarded. So with more than [`NARROW`] columns the sums have 16 bits,
//! and a step is 1/255 of the widest range of a line's entries, which are those of one table, or of two for nibbles: the
//! loss is then a small part of the differences between sums, for any M. The step follows from the tables alone, and
//! they are rounded once.
//!
//! **Rounding.** With u = 2⁻²⁴, A = Σ_m max_k |T_m[k]|, M tables:
//! - a score is M additions from β, a product, an addition, all in f32: it is off the true one by less than
//!   (M + 2) · u · s · (A + |β|) + u · |v|, or in terms of the sum by (M + 2) · u · (A + |β|) + u · |v|, to first
//!   order; twice that is subtracted from the need, and `TINY` for products that underflow. For a v far below 0 only
//!   its upper end is known; but −v − u|v| is least at the largest v, so the end suffices. A measure refers to S in
//!   real numbers, and nothing is subtracted;
//! - a lack in steps is an f32 subtraction, product (with a rounded 1 / step) and subtraction of ½; it is at most
//!   2⁻¹⁴ too large below 256: the limit is raised by `SLACK` > 258 · 2⁻¹⁴ steps;
//! - everything else is f64, whose errors are far inside the two allowances, except for needs much larger than A: 2⁻⁴⁸
//!   of each is subtracted.

use super::adjust::{Adjust, interval};
use super::kernel::ByteTables;
use crate::codes::layout::NIBBLE;
use crate::codes::packed::Layout;
use crate::isa::{self, Isa};
use crate::scan::tables::QueryTables;

/// An upper bound on the error of a sum of bytes, in steps.
const SLACK: f64 = 0.016;
/// A magnitude at which neither a sum nor a difference overflows.
const MAX_MAGNITUDE: f64 = f32::MAX as f64 / 4.0;
/// 2⁻¹⁵⁰, the error of a product that underflows, over the smallest scale.
const TINY: f64 = 1e-27;
/// The smallest step: its inverse is finite, and it is normal. (A coarser step is always sound.)
const MIN_STEP: f64 = 1e-36;
/// The largest step: its inverse is normal.
const MAX_STEP: f64 = 1e36;
/// The lack, in steps, that passes when the tables are new.
const FRESH: f64 = 254.0;
/// Tables are recomputed when less than this many steps pass.
const STALE: f64 = 160.0;

/// Columns up to which sums have 8 bits. 300,000 random codes of 64 nibbles, 64 queries: 16 bits take .6 of the time on
/// AVX2, .5 on AVX-512; of 32 nibbles .75 and 1, but a single query takes 1.27 and .94; of 16 nibbles 1.2 and 1.2.
const NARROW: usize = 40;
/// The same where a query goes through a few lists only, of which it scores a larger share. 75 of SIFT's vectors re-ranked
/// from 20 lists: with 32 nibbles .78 of the time on AVX2 and on AVX-512, with 16 nibbles .93; with 12 or 16 bytes .96.
const NARROW_IN_LISTS: usize = 10;

/// The byte tables of one query and the limit that goes with them.
#[derive(Clone, Debug)]
pub(super) struct Bounds<'a> {
    tables: QueryTables<'a>,
    layout: Layout,
    query: usize,
    maxima: Vec<f32>,
    /// An upper bound on all table sums.
    best: f64,
    /// A, an upper bound on the magnitude of all table sums.
    magnitude: f64,
    /// The segment being searched: its adjustment and base.
    place: (Adjust<'a>, f32),
    /// Whether no intermediate f32 of a score overflows there.
    is_small: bool,
    step: f64,
    /// The table sum that the last floor needs, for each byte; one entry if there are no bytes.
    needs: Vec<f64>,
    /// The bytes of the tables, and of the last column if there is one.
    bytes: ByteTables,
    /// The last floor and its limit: the limit is requested every 64 blocks, but changes less and less often.
    last: (f32, Option<u16>),
    /// The step, if there are so many columns that sums have 16 bits.
    long: Option<f64>,
    isa: Isa,
}

impl<'a> Bounds<'a> {
    /// `None` if nothing can be proven: an entry is not finite, or sums might overflow. `is_short`: the query goes through
    /// a few lists only.
    pub(super) fn new(tables: QueryTables<'a>, query: usize, layout: Layout, is_short: bool) -> Option<Self> {
        let (mut maxima, mut best, mut magnitude) = (Vec::with_capacity(tables.len()), 0.0, 0.0);
        // The widest range of a line's entries, and the range of the table before.
        let (mut widest, mut before) = (0.0f64, 0.0);
        let isa = Isa::current().unwrap_or(Isa::Scalar);
        for (column, table) in tables.iter().enumerate() {
            let named = if column < layout.n_nibbles() { &table[..NIBBLE] } else { table };
            // Choosing an instruction set takes longer than 16 entries do.
            let (least, most) =
                if named.len() == NIBBLE { range(named) } else { isa::run(isa, Range(named)) }?;
            maxima.push(most);
            let range = f64::from(most) - f64::from(least);
            let is_second = column < layout.n_nibbles() && column % 2 == 1;
            widest = widest.max(if is_second { before + range } else { range });
            before = range;
            best += f64::from(most);
            magnitude += f64::from(most).abs().max(f64::from(least).abs());
        }
        let bytes = ByteTables {
            pairs: vec![[[0; NIBBLE]; 2]; layout.n_pairs()],
            bytes: vec![[0; 256]; layout.n_lines() - layout.n_pairs()],
        };
        let place = (Adjust::None, 0.0);
        let last = (f32::NAN, None);
        (magnitude <= MAX_MAGNITUDE).then_some(Self {
            tables,
            layout,
            query,
            maxima,
            best,
            magnitude,
            place,
            is_small: true,
            step: 0.0,
            needs: Vec::new(),
            bytes,
            last,
            isa,
            long: is_long(layout, is_short).then(|| (widest / 255.0 * (1.0 + 1e-9)).max(MIN_STEP)),
        })
    }

    /// Moves on to a segment with this adjustment and base.
    pub(super) fn enter(&mut self, adjust: Adjust<'a>, base: f32) {
        self.place = (adjust, base);
        self.is_small = self.is_small();
        self.last = (f32::NAN, None);
    }

    /// An upper bound on the error of a sum of base and table entries in f32. `None` if it may overflow.
    pub(super) fn error(&self) -> Option<f64> {
        self.is_small.then(|| self.margin())
    }

    /// An upper bound on the error of a score computed from f32 sums, excluding the effect of a bias, in units of the
    /// sum.
    fn margin(&self) -> f64 {
        let unit = f64::from(f32::EPSILON / 2.0);
        let base = f64::from(self.place.1).abs();
        2.0 * unit * (self.tables.len() + 2) as f64 * (self.magnitude + base)
    }

    /// The limit for a floor: vectors whose bytes sum to less may reach a score of `floor`, the others do not. `None`
    /// if nothing can be proven. Recomputes the byte tables if that pays off.
    pub(super) fn limit(&mut self, floor: f32) -> Option<u16> {
        if floor != self.last.0 {
            self.last = (floor, self.new_limit(floor.into()));
        }
        self.last.1
    }

    /// Whether sums have 16 bits; 8-bit sums have 8-bit limits.
    pub(super) fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// The byte tables that the last limit refers to.
    pub(super) fn tables(&self) -> &ByteTables {
        &self.bytes
    }

    fn new_limit(&mut self, floor: f64) -> Option<u16> {
        if !self.is_small {
            return None;
        }
        self.set_needs(floor);
        let least = self.needs.iter().copied().fold(f64::INFINITY, f64::min);
        let lack = (self.best - least).max(0.0);
        if !lack.is_finite() || lack > MAX_STEP * FRESH {
            return None;
        }
        let step = match self.long {
            Some(step) => step,
            None if lack < self.step * STALE && self.step > MIN_STEP || lack > self.step * FRESH => {
                (lack / FRESH * (1.0 + 1e-9)).max(MIN_STEP)
            }
            None => self.step,
        };
        if step != self.step {
            self.step = step;
            let inverse = (1.0 / self.step) as f32;
            let ByteTables { pairs, bytes } = &mut self.bytes;
            let (tables, maxima) = (self.tables, &*self.maxima);
            let nibbles = &mut pairs.as_flattened_mut()[..self.layout.n_nibbles()];
            isa::run(self.isa, Quantize { nibbles, bytes, tables, maxima, inverse });
        }
        if let Some(extra) = self.bytes.bytes.get_mut(self.tables.len() - self.layout.n_nibbles()) {
            extra
                .iter_mut()
                .zip(&self.needs)
                .for_each(|(byte, need)| *byte = ((need - least) / self.step) as u8);
        }
        // At most FRESH + 1, or the largest 16-bit number: a saturated sum does not pass.
        let limit = lack / self.step + SLACK;
        (limit < f64::from(u16::MAX - 1)).then(|| limit as u16 + 1) // rounds down
    }

    fn is_small(&self) -> bool {
        let most = |numbers: &[f32]| numbers.iter().fold(0f32, |most, number| most.max(number.abs()));
        let (adjust, base) = self.place;
        let sum = self.magnitude + f64::from(base).abs();
        let score = match adjust {
            Adjust::Scale(levels) => sum * f64::from(most(levels)),
            Adjust::Bias { edges, .. } => sum + f64::from(most(edges)),
            Adjust::None | Adjust::Exact { .. } => sum,
        };
        sum.max(score) <= MAX_MAGNITUDE
    }

    /// Computes the least table sum that reaches a floor, for each byte.
    fn set_needs(&mut self, floor: f64) {
        let (adjust, base) = self.place;
        let (base, margin, query) = (f64::from(base), self.margin(), self.query);
        self.needs.clear();
        let need = |byte: u8| {
            let need = match adjust {
                Adjust::None => floor - margin,
                Adjust::Scale(levels) => floor / f64::from(levels[usize::from(byte)]) - margin - TINY,
                Adjust::Bias { edges, .. } => {
                    let most = interval(edges, byte).1;
                    floor - most - margin - 2f64.powi(-23) * most.abs()
                }
                Adjust::Exact { edges, measure, .. } => measure.need(query, floor, interval(edges, byte)),
            };
            need - base - (need.abs() + base.abs()) * 2f64.powi(-48)
        };
        match adjust {
            Adjust::None => self.needs.push(need(0)),
            _ => self.needs.extend((0..=255).map(need)),
        }
    }
}

/// Whether sums have 16 bits.
fn is_long(layout: Layout, is_short: bool) -> bool {
    layout.n_columns() > if is_short { NARROW_IN_LISTS } else { NARROW }
}

/// Converts all tables to bytes, with those indexed by nibbles first: see [`quantize`].
struct Quantize<'a> {
    nibbles: &'a mut [[u8; NIBBLE]],
    bytes: &'a mut [[u8; 256]],
    tables: QueryTables<'a>,
    maxima: &'a [f32],
    inverse: f32,
}

impl isa::Kernel for Quantize<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: isa::Level>(self) {
        let mut tables = self.tables.iter().zip(self.maxima);
        for (bytes, (table, &most)) in self.nibbles.iter_mut().zip(tables.by_ref()) {
            quantize(bytes, table.first_chunk().expect("16 entries at least"), most, self.inverse);
        }
        for (bytes, (table, &most)) in self.bytes.iter_mut().zip(tables) {
            quantize(bytes, table.first_chunk().expect("256 entries"), most, self.inverse);
        }
    }
}

/// See [`range`].
struct Range<'a>(&'a [f32]);

impl isa::Kernel for Range<'_> {
    type Output = Option<(f32, f32)>;
    #[inline(always)]
    fn run<L: isa::Level>(self) -> Self::Output {
        range(self.0)
    }
}

/// The lacks in whole steps, rounded down, at most 255.
#[inline(always)]
fn quantize<const K: usize>(bytes: &mut [u8; K], table: &[f32; K], most: f32, inverse: f32) {
    for (byte, &value) in bytes.iter_mut().zip(table) {
        let steps = ((most - value) * inverse).min(255.5);
        // Adding 2²³ rounds steps − ½ to an integer, which is at most `steps`, and leaves it in the lowest bits: this
        // vectorises everywhere, unlike `floor` and `as u8`.
        *byte = ((steps - 0.5).max(0.0) + 8_388_608.0).to_bits() as u8;
    }
}

/// The smallest and largest value; `None` if one is not finite or too large.
#[inline(always)]
fn range(table: &[f32]) -> Option<(f32, f32)> {
    let mut least = [f32::INFINITY; 16];
    let mut most = [f32::NEG_INFINITY; 16];
    let mut not_finite = [0.0; 16];
    for values in table.as_chunks::<16>().0 {
        for (i, &value) in values.iter().enumerate() {
            least[i] = least[i].min(value);
            most[i] = most[i].max(value);
            not_finite[i] += value * 0.0; // NaN from NaN and from infinities, and it stays
        }
    }
    let mut half = least.len() / 2;
    while half > 0 {
        for i in 0..half {
            least[i] = least[i].min(least[i + half]);
            most[i] = most[i].max(most[i + half]);
        }
        half /= 2;
    }
    (not_finite == [0.0; 16]).then_some((least[0], most[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::packed::{BLOCK, Line};
    use crate::scan::kernel::ScanKernel;
    use crate::scan::score::Scorer;
    use crate::scan::tables::Tables;
    use ndarray::{Array3, ArrayView3};
    use proptest::prelude::*;

    fn sum_of_bytes(tables: &ByteTables, lines: &[Line], lane: usize) -> u32 {
        let (pairs, rest) = lines.split_at(tables.pairs.len());
        let nibbles = pairs.iter().zip(&tables.pairs).map(|(line, [low, high])| {
            u32::from(low[usize::from(line[lane] % 16)]) + u32::from(high[usize::from(line[lane] / 16)])
        });
        let bytes =
            rest.iter().zip(&tables.bytes).map(|(line, bytes)| u32::from(bytes[usize::from(line[lane])]));
        nibbles.sum::<u32>() + bytes.sum::<u32>()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// 64 vectors in two segments; the score of each in turn is the floor, in any order: every vector that reaches
        /// it must pass.
        #[test]
        fn who_reaches_the_floor_passes(
            m in 1..=256usize,
            seed in any::<u64>(),
            adjust in 0..3usize,
            offset in prop::sample::select(vec![0.0f32, 1.0, -1e3, 1e6, 1e9, -3e36]),
            spread in prop::sample::select(vec![0.0f32, 1e-38, 1e-3, 1.0, 100.0, 3e36]),
            scales in prop::sample::select(vec![0.0f32, 0.1, 10.0, 60.0]),
            biases in prop::sample::select(vec![1e-9f32, 1.0, 1e6, 1e30]),
            bases in prop::sample::select(vec![0.0f32, 1e-3, 1.0, 1e5, 1e30]),
            is_sorted in any::<bool>(),
            is_small in any::<bool>(),
            is_short in any::<bool>(),
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 24) as f32
            };
            let tables = Array3::from_shape_fn((1, m, 256), |_| offset + spread * next());
            let tables = Tables::from_array(tables.view()).unwrap();
            let tables = tables.query(0);
            let scale: [f32; 256] = std::array::from_fn(|_| (scales * (2.0 * next() - 1.0)).exp2());
            let mut edges: [f32; 257] = std::array::from_fn(|_| biases * (next() - 0.5));
            edges.sort_by(f32::total_cmp);
            let layout = Layout::smallest(m, if is_small { 16 } else { 256 }, usize::from(adjust > 0));
            let lines: Vec<Line> = (0..layout.n_lines()).map(|_| std::array::from_fn(|_| (next() * 256.0) as u8)).collect();
            let exact: Vec<f32> = lines[layout.n_lines() - 1].iter().map(|&byte| {
                let byte = usize::from(byte);
                (edges[byte] + next() * (edges[byte + 1] - edges[byte])).clamp(edges[byte], edges[byte + 1])
            }).collect();
            let adjust = match adjust {
                0 => Adjust::None,
                1 => Adjust::Scale(&scale),
                _ => Adjust::Bias { edges: &edges, exact: &exact },
            };

            let Some(mut bounds) = Bounds::new(tables, 0, layout, is_short) else { return Ok(()) };
            let bases = [0.0, bases * (next() - 0.5)];
            let kernel = ScanKernel::new(Isa::Scalar).unwrap();
            let scores = bases.map(|base| Scorer { tables, adjust, base, layout, kernel }.block(0, &lines));
            let mut floors = scores.concat();
            if is_sorted {
                floors.sort_by(f32::total_cmp);
            }
            for floor in floors {
                for (base, scores) in bases.into_iter().zip(scores) {
                    bounds.enter(adjust, base);
                    let Some(limit) = bounds.limit(floor) else { continue };
                    for lane in (0..BLOCK).filter(|&lane| scores[lane] >= floor) {
                        let sum = sum_of_bytes(bounds.tables(), &lines, lane);
                        prop_assert!(sum < limit.into(), "score {} reaches {floor}, but {sum} ≥ {limit}", scores[lane]);
                    }
                }
            }
        }
    }

    fn one(table: &[f32; 256]) -> Tables {
        Tables::from_array(ArrayView3::from_shape((1, 1, 256), table).unwrap()).unwrap()
    }

    /// Whether all 256 vectors of one table, times `scale`, pass if the floor is their own score.
    fn each_passes_at_its_own_score(table: &[f32; 256], scale: f32) -> bool {
        let scale = [scale; 256];
        let tables = one(table);
        let tables = tables.query(0);
        let adjust = Adjust::Scale(&scale);
        (0..256).all(|code| {
            let lines: Vec<Line> = vec![[code as u8; BLOCK], [0; BLOCK]];
            let layout = Layout::bytes(2);
            let kernel = ScanKernel::new(Isa::Scalar).unwrap();
            let floor = Scorer { tables, adjust, base: 0.0, layout, kernel }.lane(0, &lines, 0);
            let mut bounds = Bounds::new(tables, 0, layout, false).expect("finite and small");
            bounds.enter(adjust, 0.0);
            let limit = u32::from(bounds.limit(floor).expect("finite and small"));
            sum_of_bytes(bounds.tables(), &lines, 0) < limit
        })
    }

    /// Products that underflow are all 0, however far below 0 the sums are.
    #[test]
    fn what_underflows_passes() {
        let table = std::array::from_fn(|code| -1e-30 * (1 + code) as f32);
        assert!(each_passes_at_its_own_score(&table, 2f32.powi(-60)));
    }

    #[test]
    fn nothing_is_claimed_of_tables_that_are_not_finite_or_overflow() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut table = [0.0; 256];
            table[77] = value;
            assert!(Bounds::new(one(&table).query(0), 0, Layout::bytes(1), false).is_none());
        }
    }
}
