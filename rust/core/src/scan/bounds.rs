//! Byte tables: what a vector lacks at least, in steps, and how much it may lack.
//!
//! A score is the sum of one entry of each table. Against the sum of all tables' maxima, `best`, it lacks
//! Σ_m (max_m − T_m[code m]). The byte table holds that lack in whole steps, rounded down and at most 255, so
//!
//! > step · Σ_m bytes_m[code m] ≤ Σ_m (max_m − T_m[code m]) = best − score
//!
//! and a vector whose bytes sum to more than (best − floor) / step cannot reach the score `floor`. Nothing else is
//! concluded from the bytes: what is left is scored in f32. The step follows the floor, so that the 255 steps always
//! span just what a vector may lack: the higher the floor, the finer the bytes.
//!
//! Rounding. With u = 2⁻²⁴ and A = Σ_m max_k |T_m[k]|:
//! - a score, M f32 additions from 0, is off the true sum by at most M·u·A (1 + 2⁻¹⁶): `best` is raised by 2·M·u·A;
//! - a lack in steps is an f32 subtraction, product (with a rounded 1 / step) and subtraction of ½; it is at most
//!   2⁻¹⁴ too large below 256: the limit is raised by `M_SLACK` = 66 · 2⁻¹⁴ < 0.005 steps;
//! - sums of at most 66 maxima and the limit are taken in f64; their errors, below 2⁻⁴⁰ of A, are far inside the
//!   two allowances.

use crate::tables::Table;

/// Above the largest possible error of a sum of bytes, in steps.
const M_SLACK: f64 = 0.005;
/// A magnitude at which neither a sum nor a difference overflows.
const MAX_MAGNITUDE: f64 = f32::MAX as f64 / 4.0;
/// The smallest step: its inverse is finite, and it is normal. (A coarser step is always sound.)
const MIN_STEP: f64 = 1e-36;
/// The largest lack in steps that passes when the tables are new.
const FRESH_LIMIT: f64 = 254.0;
/// Tables are made anew when the floor has come this near.
const STALE_LIMIT: f64 = 160.0;

/// Byte tables of one query and the limit that goes with them.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    maxima: Vec<f32>,
    /// No score is above this.
    best: f64,
    step: f64,
    bytes: Vec<[u8; 256]>,
}

impl Bounds {
    /// `None` where nothing can be proven: an entry is not finite, or sums might overflow.
    pub(super) fn new(tables: &[Table]) -> Option<Self> {
        let (mut maxima, mut best, mut magnitude) = (Vec::with_capacity(tables.len()), 0.0, 0.0);
        for table in tables {
            let (least, most) = range(table);
            // NaN compares with nothing: this also sees it.
            if !(-MAX_MAGNITUDE..MAX_MAGNITUDE).contains(&f64::from(least))
                || !table.iter().all(|v| v.is_finite())
            {
                return None;
            }
            maxima.push(most);
            best += f64::from(most);
            magnitude += f64::from(most.abs().max(least.abs()));
        }
        if magnitude > MAX_MAGNITUDE {
            return None;
        }
        best += 2.0 * tables.len() as f64 * magnitude * f64::from(f32::EPSILON / 2.0);
        Some(Self { maxima, best, step: -1.0, bytes: vec![[0; 256]; tables.len()] })
    }

    /// Brings the byte tables up to date with the floor, where that pays. Returns the limit: vectors whose bytes sum
    /// to less may reach a score of `floor`, the others do not.
    pub(super) fn limit(&mut self, tables: &[Table], floor: f32) -> u16 {
        let lack = (self.best - f64::from(floor)).max(0.0);
        let stale = lack < self.step * STALE_LIMIT && self.step > MIN_STEP;
        if stale || lack > self.step * FRESH_LIMIT {
            self.step = (lack / FRESH_LIMIT * (1.0 + 1e-9)).max(MIN_STEP);
            self.quantize(tables);
        }
        let limit = (lack / self.step + M_SLACK) as u16 + 1; // rounds down
        assert!(limit <= 255, "limit {limit}: a saturated sum must not pass");
        limit
    }

    /// The byte tables of the last limit.
    pub(super) fn bytes(&self) -> &[[u8; 256]] {
        &self.bytes
    }

    fn quantize(&mut self, tables: &[Table]) {
        let inverse = (1.0 / self.step) as f32;
        for ((bytes, table), &most) in self.bytes.iter_mut().zip(tables).zip(&self.maxima) {
            for (byte, &value) in bytes.iter_mut().zip(table) {
                let steps = ((most - value) * inverse).min(255.5);
                // Adding 2²³ rounds steps − ½ to an integer, which is at most `steps`, and leaves it in the lowest
                // bits: this vectorises everywhere, `floor` and `as u8` do not.
                *byte = ((steps - 0.5).max(0.0) + 8_388_608.0).to_bits() as u8;
            }
        }
    }
}

/// Least and largest value.
fn range(table: &Table) -> (f32, f32) {
    let mut least = [f32::INFINITY; 16];
    let mut most = [f32::NEG_INFINITY; 16];
    for values in table.as_chunks::<16>().0 {
        for (i, &value) in values.iter().enumerate() {
            least[i] = least[i].min(value);
            most[i] = most[i].max(value);
        }
    }
    (least.into_iter().fold(f32::INFINITY, f32::min), most.into_iter().fold(f32::NEG_INFINITY, f32::max))
}
