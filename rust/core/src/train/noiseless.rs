//! Training without noise, where noise may do more harm than good.
//!
//! Residual k-means leaves coarse codebooks first, then finer ones; noise of the same deviation in all evens that out.
//! With few bits per dimension the result loses much less. With many bits, or few vectors, it can lose more: either
//! codebooks are worse, or training ends with a small loss, but with codes that encoding does not find again.
//!
//! So both are tried, and the losses of codes chosen anew decide. By the bare losses, of 23 comparisons on small sets
//! (squared error along x times 4, equal weights) the choice was wrong about .051, .028 and .012 of the 10 best of three
//! samples of patches, and about less than .01 of five others; right, it won up to .4. Noise with the deviation of each
//! codebook's own codewords, or less noise than codes leave, did not help.

/// Vectors per codeword, up to which they are few. Of 5,000 patches of photographs, 20 per codeword, 8 codebooks trained
/// with noise found .851 of the 10 best, without .898; of 2,000 clustered vectors .779 and .852, of 2,000 normal ones .836
/// and .771. With 64, groups of 10,000 patches in 32 bytes would do without: .006 more of them are then found, but .026
/// fewer of others.
const FEW: usize = 32;
/// Bits per dimension, from which they are many. In 64 bytes, groups of GloVe's 100 dimensions have 4.5: trained with
/// noise they found .953 of the 10 best, without .969; of SIFT with 3.5 .927 and .946. Of 14,000 clustered vectors of 32
/// numbers, in 8 bytes, it was .729 and .764.
const MANY: f64 = 1.0;
/// How much of the loss with noise training without it may leave, of few vectors: codebooks fit these better than others,
/// and a loss that is a few percent less says nothing. 5,000 of Gowalla's vectors lost 4 % less without noise, and .921
/// of the 10 best of 20,486 were found in place of .930.
const CLEARLY: f64 = 0.9;

/// Whether noise may do more harm than good in training `m` codebooks of `k` codewords for `n` vectors (d).
#[must_use]
pub fn doubtful(n: usize, d: usize, m: usize, k: usize) -> bool {
    are_few(n, k) || m as f64 * (k as f64).log2() >= MANY * d as f64
}

/// Whether training `k` codewords per codebook for `n` vectors without noise is better, by what codes chosen anew lose
/// `without` it and `with` it.
#[must_use]
pub fn wins(n: usize, k: usize, without: f64, with: f64) -> bool {
    without < if are_few(n, k) { CLEARLY * with } else { with }
}

fn are_few(n: usize, k: usize) -> bool {
    n < FEW * k
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_for_many_vectors_and_few_bits() {
        assert!(!doubtful(20_000, 100, 8, 256));
        assert!(
            doubtful(8_000, 100, 8, 256) && doubtful(20_000, 64, 8, 256) && doubtful(1_000_000, 14, 8, 256)
        );
    }

    #[test]
    fn a_small_gain_counts_where_vectors_are_many() {
        assert!(wins(8_192, 256, 0.99, 1.0) && !wins(8_191, 256, 0.95, 1.0) && wins(8_191, 256, 0.89, 1.0));
        assert!(!wins(8_192, 256, 1.0, 1.0));
    }
}
