//! What a file may say of an index: all else is an error when it is loaded.

use crate::codebooks::MAX_CODEWORDS;
use crate::codes::packed::{BLOCK, PackedView};
use crate::error::{Result, invalid};
use crate::index::Settings;
use crate::scan::Levels;
use crate::vectors::metric::Metric;

/// Refuses codes that name codewords beyond the k of each of m codebooks.
pub(super) fn codewords(packed: PackedView<'_>, m: usize, k: usize) -> Result<()> {
    let lines = packed.as_bytes().chunks_exact(BLOCK).enumerate();
    let mut codes = lines.filter(|(line, _)| line % packed.n_columns() < m);
    if k < MAX_CODEWORDS && codes.any(|(_, line)| line.iter().any(|&code| usize::from(code) >= k)) {
        return Err(invalid!("codes name codewords beyond the {k} of the model"));
    }
    Ok(())
}

/// Refuses levels that do not ascend, or factors that are not positive numbers that a scan can multiply with.
pub(super) fn levels(settings: Settings, levels: &Levels) -> Result<()> {
    // Nor is NaN in any order.
    if !levels.is_sorted() {
        return Err(invalid!("levels do not ascend"));
    }
    let factors = settings.scale || settings.metric == Metric::Cosine;
    let allowed = 2f32.powi(-60)..=2f32.powi(60);
    if factors && !(allowed.contains(&levels[0]) && allowed.contains(&levels[255])) {
        return Err(invalid!("levels are {} to {}: want 2^-60 to 2^60", levels[0], levels[255]));
    }
    Ok(())
}

/// Refuses −½‖x̄‖² above 0 and ‖x − x̄‖ below.
pub(super) fn biases(settings: Settings, biases: &[f32]) -> Result<()> {
    let wrong = |bias: &&f32| if settings.residuals { **bias < 0.0 } else { **bias > 0.0 };
    match biases.iter().find(wrong) {
        Some(bias) if settings.residuals => Err(invalid!("the length of a residual is {bias}")),
        Some(bias) => Err(invalid!("minus half of a squared norm is {bias}")),
        None => Ok(()),
    }
}

/// Refuses numbers above the levels that their bytes name: a search would take the level for a bound.
pub(super) fn bounds(packed: PackedView<'_>, levels: &Levels, biases: &[f32]) -> Result<()> {
    let columns = packed.n_columns();
    let lines = packed.as_bytes().chunks_exact(BLOCK).skip(columns - 1).step_by(columns);
    for (biases, line) in biases.chunks(BLOCK).zip(lines) {
        if biases.iter().zip(line).any(|(&bias, &level)| bias > levels[usize::from(level)]) {
            return Err(invalid!("biases are above their levels"));
        }
    }
    Ok(())
}
