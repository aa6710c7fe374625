//! Vertical operations on sixteen numbers at a time, in plain loops that the compiler turns into vector instructions.
//!
//! Numbers are loaded as whole lanes before any is stored: the compiler cannot tell that two slices do not overlap, and
//! would otherwise add them one by one. Minima are kept per lane and folded only once per step: a horizontal minimum
//! costs more than the 256 additions that it follows, and inside the loop it misleads the vectoriser.

/// Numbers handled together: one AVX-512 register.
pub(super) const LANES: usize = 16;
pub(super) type Lanes = [f32; LANES];

/// The smaller of two numbers; NaN is never smaller.
#[inline(always)]
pub(super) fn min(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

#[inline(always)]
fn load(values: &[f32]) -> Lanes {
    *values.first_chunk().expect("a chunk of LANES")
}

/// The minimum of each lane over `scores`.
#[inline(always)]
pub(super) fn minima(scores: &[f32]) -> Lanes {
    let mut minima = [f32::INFINITY; LANES];
    for scores in scores.chunks_exact(LANES) {
        for l in 0..LANES {
            minima[l] = min(minima[l], scores[l]);
        }
    }
    minima
}

/// `scores += row`, and the new minimum of each lane.
#[inline(always)]
pub(super) fn add_minima(scores: &mut [f32], row: &[f32]) -> Lanes {
    let mut minima = [f32::INFINITY; LANES];
    for (scores, row) in scores.chunks_exact_mut(LANES).zip(row.chunks_exact(LANES)) {
        let (mut sums, row) = (load(scores), load(row));
        for l in 0..LANES {
            sums[l] += row[l];
            minima[l] = min(minima[l], sums[l]);
        }
        scores.copy_from_slice(&sums);
    }
    minima
}

/// Calls `each` with the position and value of every score up to `bound`, in order.
#[inline(always)]
pub(super) fn for_each_up_to(scores: &[f32], bound: f32, mut each: impl FnMut(usize, f32)) {
    for (i, lanes) in scores.chunks_exact(LANES).enumerate() {
        // No early exit: written this way, the compiler compares all lanes at once.
        if lanes.iter().fold(false, |any, &score| any | (score <= bound)) {
            for (l, &score) in lanes.iter().enumerate() {
                if score <= bound {
                    each(i * LANES + l, score);
                }
            }
        }
    }
}

/// The minimum of all lanes.
#[inline(always)]
pub(super) fn fold(lanes: &Lanes) -> f32 {
    lanes.iter().fold(f32::INFINITY, |a, &b| min(a, b))
}

/// The first position of `value` in `scores`. It is 0 if the value is missing, which takes NaN, or if it is that of the
/// padding: scores beyond float32.
#[inline(always)]
pub(super) fn find(scores: &[f32], value: f32) -> usize {
    let mut first = [u32::MAX; LANES];
    for (i, scores) in scores.chunks_exact(LANES).enumerate() {
        for l in 0..LANES {
            let here = if scores[l] == value { (i * LANES + l) as u32 } else { u32::MAX };
            first[l] = if here < first[l] { here } else { first[l] };
        }
    }
    match first.iter().fold(u32::MAX, |a, &b| if b < a { b } else { a }) {
        found if found < u32::MAX && value < f32::INFINITY => found as usize,
        _ => 0,
    }
}

/// `scores += factor · row`.
#[inline(always)]
pub(super) fn add_multiple(scores: &mut [f32], factor: f32, row: &[f32]) {
    scores.iter_mut().zip(row).for_each(|(score, &value)| *score += factor * value);
}

/// (middle, half of the width) of `values`, leaving out +∞.
#[inline(always)]
pub(super) fn spread(values: &[f32]) -> (f32, f32) {
    let (mut low, mut high) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for values in values.chunks_exact(LANES) {
        for l in 0..LANES {
            let value = if values[l] < f32::INFINITY { values[l] } else { f32::NEG_INFINITY };
            low[l] = min(low[l], values[l]);
            high[l] = if value > high[l] { value } else { high[l] };
        }
    }
    let (low, high) = (fold(&low), high.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a }));
    ((low + high) / 2.0, (high - low) / 2.0)
}
