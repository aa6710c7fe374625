//! What a round of local search perturbs: the same for all vectors, so a code depends on nothing but its vector and the
//! seed.

use super::gram_rows::MOST;
use super::levels::LEVELS;
use super::space::Space;

/// A perturbation takes the best of one in this many codewords: a single random codeword would rarely be useful.
const DRAWN: usize = 16;
/// An upper bound on the sweeps of [`Search::settle`]; usually there are two or three.
pub(super) const SWEEPS: usize = 16;

/// Draws what a round perturbs: writes to `perturbed` some codebooks, each with the first of the codewords drawn, and
/// puts these codebooks last in `order`. Returns the number of codewords drawn for each.
pub(super) fn drawn(
    space: &Space<'_>,
    random: &mut Random,
    order: &mut [usize],
    perturbed: &mut Vec<(usize, usize)>,
) -> usize {
    let m = space.n_codebooks;
    // A power of two, since they are lanes of one register.
    let size = 1 << (space.n_codewords / DRAWN).clamp(1, LEVELS / 2).ilog2();
    // Measured on SIFT: with 16 codebooks of 16 codewords, perturbing 3 or 4 finds most in a given time; with 8 of 256
    // it is 3.
    let times = if space.n_codewords <= MOST { m / 4 } else { 3 * m / 8 };
    let mut taken = 0u64;
    for _ in 0..times.max(1) {
        let mut book = random.below(m);
        while taken >> book & 1 == 1 {
            book = random.below(m);
        }
        taken |= 1 << book;
        perturbed.push((book, size * random.below(space.n_codewords.div_ceil(size))));
    }
    let (mut first, mut last) = (0, m - taken.count_ones() as usize);
    for book in 0..m {
        let place = if taken >> book & 1 == 1 { &mut last } else { &mut first };
        order[*place] = book;
        *place += 1;
    }
    size
}

/// SplitMix64 (Steele et al. 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    #[inline(always)]
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }
}
