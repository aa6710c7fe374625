//! Numbers a vector that change its score: a scale and a bias.
//!
//! Both are stored as one byte a vector, in columns of the packed codes after the M codes: first the scale's, then the
//! bias'. A byte names one of 256 levels. So the scan bounds scores with them at full speed, as if they were codes.

use crate::codes::packed::PackedView;
use crate::error::{Result, invalid};

/// The 256 numbers that the bytes of a column stand for.
pub type Levels = [f32; 256];

/// What multiplies and adds to the table sums: score = (sum · scale) + bias, each step rounded to f32.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adjust<'a> {
    /// Multiplies the sum; levels from 2⁻⁶⁰ to 2⁶⁰. The first column after the codes.
    pub scale: Option<&'a Levels>,
    /// Is added then; levels finite. The last column.
    pub bias: Option<&'a Levels>,
    /// One number a vector, added in place of the bias' level, which must not be below it: the level serves to discard.
    pub exact_bias: Option<&'a [f32]>,
}

impl Adjust<'_> {
    /// Columns beside the codes.
    #[must_use]
    pub fn n_columns(&self) -> usize {
        usize::from(self.scale.is_some()) + usize::from(self.bias.is_some())
    }

    pub(super) fn check(&self, codes: PackedView<'_>) -> Result<()> {
        let scales = -60..=60;
        let allowed = 2f32.powi(*scales.start())..=2f32.powi(*scales.end());
        if let Some(&level) =
            self.scale.and_then(|levels| levels.iter().find(|level| !allowed.contains(level)))
        {
            return Err(invalid!("a scale is {level}: want 2^-60 to 2^60"));
        }
        if let Some(&level) = self.bias.and_then(|levels| levels.iter().find(|level| !level.is_finite())) {
            return Err(invalid!("a bias is {level}: want finite ones"));
        }
        match self.exact_bias {
            Some(_) if self.bias.is_none() => Err(invalid!("an exact bias needs levels of the bias")),
            Some(exact) if exact.len() != codes.len() => {
                Err(invalid!("the exact bias has {} numbers for {} vectors", exact.len(), codes.len()))
            }
            Some(exact) => {
                debug_assert!(self.is_bounded(exact, codes), "an exact bias is above its level");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Adjust<'_> {
    /// Whether no exact bias is above its level.
    fn is_bounded(&self, exact: &[f32], codes: PackedView<'_>) -> bool {
        let level = |position| {
            let byte = codes.codes(position).last().expect("at least one column");
            self.bias.expect("checked")[usize::from(byte)]
        };
        exact.iter().enumerate().all(|(position, &bias)| bias <= level(position))
    }
}

/// 256 evenly spaced levels from the least to the largest value, and the byte of the lowest level that is not below
/// each value: what [`Adjust::exact_bias`] asks for. A level is less than (largest − least) / 255 above its value,
/// rounding aside.
///
/// Values are finite; without any, the levels are 0.
#[must_use]
pub fn levels_above(values: &[f32]) -> (Levels, Vec<u8>) {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if values.is_empty() {
        return ([0.0; 256], Vec::new());
    }
    let step = (f64::from(most) - f64::from(least)) / 255.0;
    let mut levels: Levels = std::array::from_fn(|i| (f64::from(least) + i as f64 * step) as f32);
    levels[255] = most;
    let bytes = values.iter().map(|&value| {
        let guess =
            if step > 0.0 { ((f64::from(value) - f64::from(least)) / step).ceil() as usize } else { 0 };
        // Rounding may have put the guessed level below the value, not the one after it.
        let level = (guess.min(255)..255).find(|&i| levels[i] >= value).unwrap_or(255);
        level as u8
    });
    let bytes = bytes.collect();
    (levels, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn levels_are_not_below_their_values(values in prop::collection::vec(-1e6f32..1e6, 0..300), same in any::<bool>()) {
            let values = if same { vec![0.1; values.len()] } else { values };
            let (levels, bytes) = levels_above(&values);
            prop_assert_eq!(bytes.len(), values.len());
            let spread = values.iter().fold(0f32, |a, v| a.max(v.abs())) * 2.0;
            for (&value, &byte) in values.iter().zip(&bytes) {
                let level = levels[usize::from(byte)];
                prop_assert!(level >= value && level - value <= spread * (1.0 / 255.0 + 1e-5));
            }
        }
    }
}
