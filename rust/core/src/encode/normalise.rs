//! Codebooks prepared for the encoder's float32 scores: near the origin, and of magnitude 1.

use super::nearest;
use crate::codebooks::Codebooks;

/// The ratio of ‖mean‖² of the sums to the mean ‖c − mean‖² of the codewords from which on codebooks are centered.
/// Beyond it, float32 keeps no more than four digits of the scores, and ever fewer.
const FAR: f64 = 1000.0;

/// The offset to subtract from vectors, the scale, and the codewords moved and scaled accordingly.
///
/// Moving each codebook's mean into a common offset changes no sum, but it does change which codeword a *greedy* choice
/// takes first. So it is done only if the vectors lie so far from the origin that float32 scores would be noise.
pub(super) fn normalise(codebooks: &Codebooks, books: usize) -> (Vec<f32>, f32, Vec<f32>) {
    let (m, k, d) = codebooks.view().dim();
    let mut words = codebooks.as_slice()[..books * k * d].to_vec();
    let means: Vec<Vec<f32>> = words
        .chunks_exact(k * d)
        .map(|book| {
            let sum = |j| book.iter().skip(j).step_by(d).map(|&c| f64::from(c)).sum::<f64>();
            (0..d).map(|j| (sum(j) / k as f64) as f32).collect()
        })
        .collect();
    // A shared codebook is added M times.
    let times = (m / books) as f64;
    let center = |j: usize| times * means.iter().map(|mean| f64::from(mean[j])).sum::<f64>();
    let mut center: Vec<f32> = (0..d).map(|j| center(j) as f32).collect();
    let mut centered = words.clone();
    for (book, mean) in centered.chunks_exact_mut(k * d).zip(&means) {
        book.chunks_exact_mut(d).for_each(|word| word.iter_mut().zip(mean).for_each(|(c, mean)| *c -= mean));
    }
    let square = |values: &[f32]| values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
    if square(&center) > FAR * square(&centered) / (books * k) as f64 {
        words = centered;
    } else {
        center.fill(0.0);
    }
    let scale = nearest::power_of_two(&words);
    words.iter_mut().for_each(|c| *c *= scale);
    (center, scale, words)
}
