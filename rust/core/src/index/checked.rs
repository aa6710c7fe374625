//! Checks of what a file says about an index: anything else is an error when it is loaded.

use super::column::Run;
use super::side::Side;
use crate::codebooks::MAX_CODEWORDS;
use crate::codes::layout::NIBBLE;
use crate::codes::packed::{BLOCK, PackedView};
use crate::error::{Result, invalid};
use crate::scan::{Edges, Levels};

/// Rejects codes that name codewords beyond the k of each of m codebooks.
pub(super) fn codewords(packed: PackedView<'_>, m: usize, k: usize) -> Result<()> {
    let (layout, n_lines) = (packed.layout(), packed.n_lines());
    let beyond = |(line, codes): (usize, &[u8])| {
        let first = 2 * (line % n_lines);
        if first >= layout.n_nibbles() {
            // The columns of bytes: the codes first.
            let column = line % n_lines - layout.n_pairs() + layout.n_nibbles();
            return column < m && k < MAX_CODEWORDS && codes.iter().any(|&code| usize::from(code) >= k);
        }
        let has_upper = first + 1 < layout.n_nibbles();
        let is_beyond = |&code: &u8| usize::from(code & 15) >= k || has_upper && usize::from(code >> 4) >= k;
        k < NIBBLE && codes.iter().any(is_beyond)
    };
    if packed.as_bytes().chunks_exact(BLOCK).enumerate().any(beyond) {
        return Err(invalid!("codes name codewords beyond the {k} of the model"));
    }
    Ok(())
}

/// Rejects levels that do not ascend, or factors that are not positive numbers a scan can multiply by.
pub(super) fn levels(side: Side, levels: &Levels) -> Result<()> {
    // This includes NaN, which has no place in any order.
    if !levels.is_sorted() {
        return Err(invalid!("levels do not ascend"));
    }
    let factors = matches!(side, Side::Scale | Side::InverseNorm);
    let allowed = 2f32.powi(-60)..=2f32.powi(60);
    if factors && !(allowed.contains(&levels[0]) && allowed.contains(&levels[255])) {
        return Err(invalid!("levels are {} to {}: want 2^-60 to 2^60", levels[0], levels[255]));
    }
    Ok(())
}

/// Rejects edges of intervals that do not ascend, or that lie where no number can.
pub(super) fn edges(side: Side, edges: &Edges) -> Result<()> {
    if !edges.is_sorted() {
        return Err(invalid!("edges do not ascend"));
    }
    if matches!(side, Side::InverseNorm | Side::ResidualNorm) && edges[0] < 0.0 {
        return Err(invalid!("edges of lengths begin at {}", edges[0]));
    }
    Ok(())
}

/// Rejects −½‖x̄ − c‖² above 0 and ‖x − x̄‖ below 0.
pub(super) fn numbers(side: Side, numbers: &[f32]) -> Result<()> {
    let are_residuals = side == Side::ResidualNorm;
    let wrong = |number: &&f32| if are_residuals { **number < 0.0 } else { **number > 0.0 };
    match numbers.iter().find(wrong) {
        Some(number) if are_residuals => Err(invalid!("the length of a residual is {number}")),
        Some(number) => Err(invalid!("minus half of a squared norm is {number}")),
        None => Ok(()),
    }
}

/// Rejects numbers outside the intervals that their bytes name, since a search would rely on the edges as bounds. The
/// first run begins at 0.
pub(super) fn intervals(packed: PackedView<'_>, runs: &[Run], numbers: &[f32]) -> Result<()> {
    let n_lines = packed.n_lines();
    let lines = packed.as_bytes().chunks_exact(BLOCK).skip(n_lines - 1).step_by(n_lines);
    let mut run = 0;
    for (block, (numbers, line)) in numbers.chunks(BLOCK).zip(lines).enumerate() {
        while runs.get(run + 1).is_some_and(|next| next.first <= block * BLOCK) {
            run += 1;
        }
        let edges = &runs[run].edges;
        let within = |(number, &byte): (&f32, &u8)| {
            (edges[usize::from(byte)]..=edges[usize::from(byte) + 1]).contains(number)
        };
        if !numbers.iter().zip(line).all(within) {
            return Err(invalid!("biases are outside their intervals"));
        }
    }
    Ok(())
}
