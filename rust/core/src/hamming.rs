//! Searching bit strings by Hamming distance.

use crate::error::{Result, invalid};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::scan::Hits;
use ndarray::ArrayView2;
use rayon::prelude::*;

/// The `k` strings of `codes` (n, B) that differ from each of `queries` (nq, B) in the fewest bits; of equal ones those of
/// the lower positions. A score is minus the number of bits.
///
/// # Errors
/// Strings of different lengths, or a cancelling monitor.
pub fn search(
    codes: ArrayView2<'_, u8>,
    queries: ArrayView2<'_, u8>,
    k: usize,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let (n, bytes) = codes.dim();
    if queries.ncols() != bytes {
        return Err(invalid!("queries have {} bytes, the codes have {bytes}", queries.ncols()));
    }
    let isa = Isa::current()?;
    let mut hits = Hits::none(queries.nrows(), k)?;
    let words = bytes.div_ceil(8);
    let (codes, queries) = (packed(codes, words), packed(queries, words));
    let counter = Counter::new(monitor, hits.scores.nrows() as u64);
    let scores = hits.scores.as_slice_mut().expect("fresh").par_chunks_mut(k.max(1));
    let positions = hits.positions.as_slice_mut().expect("fresh").par_chunks_mut(k.max(1));
    scores.zip(positions).enumerate().try_for_each_init(
        || vec![0u32; n],
        |distances, (i, (scores, positions))| {
            let query = &queries[i * words..][..words];
            isa::run(isa, Distances { codes: &codes, query, distances });
            // How many strings there are at each distance tells how far the k best reach.
            let mut counts = vec![0usize; 8 * bytes + 1];
            distances.iter().for_each(|&distance| counts[distance as usize] += 1);
            let mut places = Vec::with_capacity(counts.len());
            let mut before = 0;
            for count in counts {
                places.push(before);
                before += count;
            }
            for (position, &distance) in distances.iter().enumerate() {
                let place = &mut places[distance as usize];
                if *place < k {
                    scores[*place] = 0.0 - distance as f32;
                    positions[*place] = position as i64;
                }
                *place += 1;
            }
            counter.add(1)
        },
    )?;
    Ok(hits)
}

/// Rows as whole words, filled up with zeros.
fn packed(rows: ArrayView2<'_, u8>, words: usize) -> Vec<u64> {
    let mut packed = Vec::with_capacity(rows.nrows() * words);
    let mut row_bytes = vec![0u8; 8 * words];
    for row in rows.outer_iter() {
        row_bytes.iter_mut().zip(row).for_each(|(to, &byte)| *to = byte);
        packed.extend(row_bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes"))));
    }
    packed
}

struct Distances<'a> {
    codes: &'a [u64],
    query: &'a [u64],
    distances: &'a mut [u32],
}

impl Kernel for Distances<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        match *self.query {
            // Written apart, so that the compiler counts several strings at once.
            [query] => {
                let pairs = self.distances.iter_mut().zip(self.codes);
                pairs.for_each(|(distance, code)| *distance = (code ^ query).count_ones());
            }
            _ => {
                let rows = self.codes.chunks_exact(self.query.len().max(1));
                for (distance, code) in self.distances.iter_mut().zip(rows) {
                    *distance = code.iter().zip(self.query).map(|(a, b)| (a ^ b).count_ones()).sum();
                }
            }
        }
    }
}
