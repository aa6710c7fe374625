//! Byte tables: what a vector lacks at least, in steps, and how much it may lack.
//!
//! A table sum is one entry of each table. Against the sum of all tables' maxima, `best`, it lacks
//! Σ_m (max_m − T_m[code m]). The byte table holds that lack in whole steps, rounded down and at most 255, so
//!
//! > step · Σ_m bytes_m[code m] ≤ Σ_m (max_m − T_m[code m]) = best − sum
//!
//! and a vector whose bytes sum to more than (best − floor) / step cannot reach the score `floor`. Nothing else is
//! concluded from the bytes: what is left is scored in f32. The step follows the floor, so that the 255 steps always
//! span just what a vector may lack: the higher the floor, the finer the bytes.
//!
//! **Scale and bias.** sum · s + b ≥ floor means sum ≥ (floor − b) / s. With b⁺ the largest bias and s⁺ the largest
//! scale, the right side is
//!
//! > (floor − b) / s = (floor − b⁺) / s + (b⁺ − b) / s ≥ (floor − b⁺) / s + (b⁺ − b) / s⁺
//!
//! One term for each byte: `need` is the least that the first takes over all scales; what is above it, and the second
//! term, are lacks like the others, and get byte tables. They are made for one floor φ; for a higher one, each vector's
//! need is higher by (floor − φ) / s, at least (floor − φ) / s⁺. Without a scale s is 1 and nothing is lost.
//!
//! **Rounding.** With u = 2⁻²⁴, A = Σ_m max_k |T_m[k]|, B the largest |bias| and s⁻ the smallest scale:
//! - a score is M additions from 0, a product and an addition, all in f32: it is off the true one by less than
//!   (M + 2) · u · s A + u · B, or in terms of the sum by (M + 2) · u · A + u · B / s⁻, to first order; twice that is
//!   added to `best`, and `TINY` for products that underflow;
//! - a lack in steps is an f32 subtraction, product (with a rounded 1 / step) and subtraction of ½; it is at most
//!   2⁻¹⁴ too large below 256: the limit is raised by `SLACK` > 66 · 2⁻¹⁴ steps;
//! - everything else is f64, whose errors are far inside the two allowances, but for needs much larger than A: `best`
//!   is raised by 2⁻⁴⁸ of them.

use super::adjust::Adjust;
use crate::scan::tables::Table;

/// Above the largest possible error of a sum of bytes, in steps.
const SLACK: f64 = 0.005;
/// A magnitude at which neither a sum nor a difference overflows.
const MAX_MAGNITUDE: f64 = f32::MAX as f64 / 4.0;
/// 2⁻¹⁵⁰, the error of a product that underflows, over the smallest scale.
const TINY: f64 = 1e-27;
/// The smallest step: its inverse is finite, and it is normal. (A coarser step is always sound.)
const MIN_STEP: f64 = 1e-36;
/// The lack in steps that passes when the tables are new.
const FRESH: f64 = 254.0;
/// Tables are made anew when less than this many steps pass.
const STALE: f64 = 160.0;

/// Byte tables of one query and the limit that goes with them.
#[derive(Clone, Debug)]
pub(super) struct Bounds<'a> {
    tables: &'a [Table],
    adjust: Adjust<'a>,
    maxima: Vec<f32>,
    /// No table sum is above this.
    best: f64,
    /// b⁺, 0 without a bias.
    most_bias: f64,
    /// s⁻ and s⁺, 1 without a scale.
    scales: (f64, f64),
    /// The floor that the byte tables were made for, and best − need at that floor.
    made_for: Option<(f64, f64)>,
    step: f64,
    bytes: Vec<[u8; 256]>,
    /// The last floor and its limit: it is asked for every 64 blocks, and changes less and less often.
    last: (f32, u8),
}

impl<'a> Bounds<'a> {
    /// `None` where nothing can be proven: an entry is not finite, or sums might overflow.
    pub(super) fn new(tables: &'a [Table], adjust: Adjust<'a>) -> Option<Self> {
        let (mut maxima, mut best, mut magnitude) = (Vec::with_capacity(tables.len()), 0.0, 0.0);
        for table in tables {
            let (least, most) = range(table)?;
            maxima.push(most);
            best += f64::from(most);
            magnitude += f64::from(most).abs().max(f64::from(least).abs());
        }
        let ((least_scale, scale), (least_bias, bias)) =
            (levels(adjust.scale, 1.0), levels(adjust.bias, 0.0));
        let bias_magnitude = bias.abs().max(least_bias.abs());
        if magnitude.max(magnitude * scale) + bias_magnitude > MAX_MAGNITUDE {
            return None;
        }
        let unit = f64::from(f32::EPSILON / 2.0);
        best += 2.0 * unit * ((tables.len() + 2) as f64 * magnitude + bias_magnitude / least_scale);
        if adjust.scale.is_some() {
            best += TINY;
        }
        let bytes = vec![[0; 256]; tables.len() + adjust.n_columns()];
        let (scales, most_bias) = ((least_scale, scale), bias);
        Some(Self {
            tables,
            adjust,
            maxima,
            best,
            most_bias,
            scales,
            made_for: None,
            step: 0.0,
            bytes,
            last: (f32::NAN, 0),
        })
    }

    /// The limit for a floor: vectors whose bytes sum to less may reach a score of `floor`, the others do not.
    /// Makes the byte tables anew where that pays. A floor is not below those before it, or the tables are made anew.
    pub(super) fn limit(&mut self, floor: f32) -> u8 {
        if floor != self.last.0 {
            self.last = (floor, self.new_limit(floor.into()));
        }
        self.last.1
    }

    fn new_limit(&mut self, floor: f64) -> u8 {
        let lack = match self.made_for {
            Some((made_for, lack)) if made_for <= floor => {
                (lack - (floor - made_for) / self.scales.1).max(0.0)
            }
            _ => f64::INFINITY,
        };
        let stale = lack < self.step * STALE && self.step > MIN_STEP;
        let lack = if stale || lack > self.step * FRESH { self.make(floor) } else { lack };
        let limit = (lack / self.step + SLACK) as u16 + 1; // rounds down
        u8::try_from(limit).expect("at most FRESH + 1: a sum saturated at 255 does not pass")
    }

    /// The byte tables of the last limit.
    pub(super) fn bytes(&self) -> &[[u8; 256]] {
        &self.bytes
    }

    /// Makes the byte tables for a floor. Returns what may lack.
    fn make(&mut self, floor: f64) -> f64 {
        let (least_scale, most_scale) = self.scales;
        // Decreasing in the scale if it is positive, else increasing: least at one of the ends.
        let need_at = |scale: f64| (floor - self.most_bias) / scale;
        let (at_least, at_most) = (need_at(least_scale), need_at(most_scale));
        let need = at_least.min(at_most);
        let lack = (self.best - need + at_least.abs().max(at_most.abs()) * 2f64.powi(-48)).max(0.0);
        self.step = (lack / FRESH * (1.0 + 1e-9)).max(MIN_STEP);
        self.made_for = Some((floor, lack));

        let inverse = (1.0 / self.step) as f32;
        for ((bytes, table), &most) in self.bytes.iter_mut().zip(self.tables).zip(&self.maxima) {
            quantize(bytes, table, most, inverse);
        }
        let mut extra = self.bytes[self.tables.len()..].iter_mut();
        let mut fill = |levels: &[f32; 256], lack: &dyn Fn(f64) -> f64| {
            let bytes = extra.next().expect("a table for each column");
            bytes
                .iter_mut()
                .zip(levels)
                .for_each(|(byte, &level)| *byte = (lack(level.into()) / self.step) as u8);
        };
        if let Some(levels) = self.adjust.scale {
            fill(levels, &|scale| need_at(scale) - need);
        }
        if let Some(levels) = self.adjust.bias {
            fill(levels, &|bias| (self.most_bias - bias) / most_scale);
        }
        lack
    }
}

/// Lacks in whole steps, rounded down, at most 255.
fn quantize(bytes: &mut [u8; 256], table: &Table, most: f32, inverse: f32) {
    for (byte, &value) in bytes.iter_mut().zip(table) {
        let steps = ((most - value) * inverse).min(255.5);
        // Adding 2²³ rounds steps − ½ to an integer, which is at most `steps`, and leaves it in the lowest bits:
        // this vectorises everywhere, `floor` and `as u8` do not.
        *byte = ((steps - 0.5).max(0.0) + 8_388_608.0).to_bits() as u8;
    }
}

/// Least and largest value; `None` if one is not finite or too large.
fn range(table: &Table) -> Option<(f32, f32)> {
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
    let least = least.into_iter().fold(f32::INFINITY, f32::min);
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    (not_finite == [0.0; 16]).then_some((least, most))
}

/// Least and largest level, `default` without levels.
fn levels(levels: Option<&[f32; 256]>, default: f64) -> (f64, f64) {
    let levels = || levels.into_iter().flatten().map(|&level| f64::from(level));
    if levels().next().is_none() {
        return (default, default);
    }
    (levels().fold(f64::INFINITY, f64::min), levels().fold(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::packed::{BLOCK, Line};
    use crate::scan::score::Scorer;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// 64 vectors; each one's score in turn is the floor, from the lowest on: whoever reaches it must pass.
        #[test]
        fn who_reaches_the_floor_passes(
            m in 1..=64usize,
            seed in any::<u64>(),
            adjust in 0..4usize,
            offset in prop::sample::select(vec![0.0f32, 1.0, -1e3, 1e6, 1e9, -3e36]),
            spread in prop::sample::select(vec![0.0f32, 1e-38, 1e-3, 1.0, 100.0, 3e36]),
            scales in prop::sample::select(vec![0.0f32, 0.1, 10.0, 60.0]),
            biases in prop::sample::select(vec![1e-9f32, 1.0, 1e6, 1e30]),
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 24) as f32
            };
            let tables: Vec<Table> = (0..m).map(|_| std::array::from_fn(|_| offset + spread * next())).collect();
            let scale: [f32; 256] = std::array::from_fn(|_| (scales * (2.0 * next() - 1.0)).exp2());
            let bias: [f32; 256] = std::array::from_fn(|_| biases * (next() - 0.5));
            let adjust = Adjust {
                scale: (adjust & 1 > 0).then_some(&scale),
                bias: (adjust & 2 > 0).then_some(&bias),
                exact_bias: None,
            };
            let n_columns = m + adjust.n_columns();
            let lines: Vec<Line> = (0..n_columns).map(|_| std::array::from_fn(|_| (next() * 256.0) as u8)).collect();
            let scores = Scorer { tables: &tables, adjust }.block(0, &lines);
            let mut floors = scores;
            floors.sort_by(f32::total_cmp);

            let Some(mut bounds) = Bounds::new(&tables, adjust) else { return Ok(()) };
            for floor in floors {
                let limit = u32::from(bounds.limit(floor));
                for lane in (0..BLOCK).filter(|&lane| scores[lane] >= floor) {
                    let bytes = lines.iter().zip(bounds.bytes());
                    let sum: u32 = bytes.map(|(line, bytes)| u32::from(bytes[usize::from(line[lane])])).sum();
                    prop_assert!(sum < limit, "score {} reaches {floor}, but {sum} ≥ {limit}", scores[lane]);
                }
            }
        }
    }

    /// Whether all 256 vectors of one table, times `scale`, pass where the floor is their own score.
    fn each_passes_at_its_own_score(table: &Table, scale: Option<f32>) -> bool {
        let scale = scale.map(|scale| [scale; 256]);
        let tables = [*table];
        let adjust = Adjust { scale: scale.as_ref(), ..Adjust::default() };
        (0..256).all(|code| {
            let mut lines: Vec<Line> = vec![[code as u8; BLOCK]];
            lines.resize(1 + adjust.n_columns(), [0; BLOCK]);
            let floor = Scorer { tables: &tables, adjust }.lane(0, &lines, 0);
            let mut bounds = Bounds::new(&tables, adjust).expect("finite and small");
            let limit = u32::from(bounds.limit(floor));
            lines
                .iter()
                .zip(bounds.bytes())
                .map(|(line, bytes)| u32::from(bytes[usize::from(line[0])]))
                .sum::<u32>()
                < limit
        })
    }

    /// Products that underflow are all 0, however far the sums below 0.
    #[test]
    fn what_underflows_passes() {
        let table = std::array::from_fn(|code| -1e-30 * (1 + code) as f32);
        assert!(each_passes_at_its_own_score(&table, Some(2f32.powi(-60))));
    }

    #[test]
    fn nothing_is_claimed_of_tables_that_are_not_finite_or_overflow() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut table = [0.0; 256];
            table[77] = value;
            assert!(Bounds::new(&[table], Adjust::default()).is_none());
        }
    }
}
