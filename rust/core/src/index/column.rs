//! The byte that metrics other than the inner product need beside the codes: one of 256 levels of a number a vector.
//!
//! | index | number | levels |
//! |---|---|---|
//! | cosine | 1 / ‖x̄‖, multiplies | evenly spaced in the logarithm |
//! | Euclidean | −½‖x̄‖², is added | evenly spaced |
//! | with residuals | ‖x − x̄‖, is added for a bound | evenly spaced |
//! | with a scale | ‖x‖² / ⟨x, x̄⟩, multiplies | evenly spaced in the logarithm, from ¼ to 4 |
//!
//! The first two follow from the codes, and residuals are kept in f32, so that the levels can be laid anew when a number
//! falls outside them.

use crate::scan::Levels;

/// The least and largest scale that is told apart; beyond them it counts as these.
const SCALES: (f64, f64) = (0.25, 4.0);

/// 256 levels, ascending.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) levels: Box<Levels>,
}

impl Column {
    /// Levels for `values`, with room for some more beyond them up to `limit`; evenly spaced.
    pub(super) fn even(values: &[f32], limit: f32) -> Self {
        let (least, most) = range(values);
        let margin = (most - least) / 8.0;
        let (least, most) = (least - margin, (most + margin).min(limit.into()));
        Self { levels: Box::new(std::array::from_fn(|i| (least + i as f64 / 255.0 * (most - least)) as f32)) }
    }

    /// Levels for positive `values`, with room for some more beyond them; evenly spaced in the logarithm.
    pub(super) fn geometric(values: &[f32]) -> Self {
        let (least, most) = range(values);
        Self::between(least / 1.25, most * 1.25)
    }

    /// Levels for scales.
    pub(super) fn scales() -> Self {
        Self::between(SCALES.0, SCALES.1)
    }

    fn between(least: f64, most: f64) -> Self {
        let level = |i: usize| least * (most / least).powf(i as f64 / 255.0);
        Self { levels: Box::new(std::array::from_fn(|i| level(i) as f32)) }
    }

    /// Whether all `values` lie within the levels.
    pub(super) fn holds(&self, values: &[f32]) -> bool {
        values.iter().all(|value| (self.levels[0]..=self.levels[255]).contains(value))
    }

    /// The nearest level of each value.
    pub(super) fn nearest(&self, values: &[f32]) -> Vec<u8> {
        let above = self.above(values);
        let nearer = |(&value, above): (&f32, u8)| match above {
            0 => 0,
            above
                if value - self.levels[usize::from(above) - 1] < self.levels[usize::from(above)] - value =>
            {
                above - 1
            }
            above => above,
        };
        values.iter().zip(above).map(nearer).collect()
    }

    /// The lowest level that is not below each value; the highest for values above all.
    pub(super) fn above(&self, values: &[f32]) -> Vec<u8> {
        let above = |value: &f32| self.levels.partition_point(|level| level < value).min(255) as u8;
        values.iter().map(above).collect()
    }
}

fn range(values: &[f32]) -> (f64, f64) {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (f64::from(least), f64::from(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn levels_are_near_their_values(values in prop::collection::vec(1e-3f32..1e3, 1..200)) {
            let column = Column::geometric(&values);
            prop_assert!(column.holds(&values) && column.levels.is_sorted());
            let step = f64::from(column.levels[255] / column.levels[0]).powf(1.0 / 255.0) + 1e-5;
            for (value, level) in values.iter().zip(column.nearest(&values)) {
                let ratio = f64::from(column.levels[usize::from(level)] / value);
                prop_assert!(ratio < 2.0 * step / (1.0 + step) && ratio > 2.0 / (1.0 + step), "{ratio} {step}");
            }
            let negative: Vec<f32> = values.iter().map(|value| -value).collect();
            let column = Column::even(&negative, 0.0);
            prop_assert!(column.holds(&negative) && column.levels.is_sorted());
            for (value, level) in negative.iter().zip(column.above(&negative)) {
                prop_assert!(column.levels[usize::from(level)] >= *value);
                prop_assert!(level == 0 || column.levels[usize::from(level) - 1] < *value);
            }
        }
    }
}
