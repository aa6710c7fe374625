//! Searching bit strings by Hamming distance.

use crate::error::{Result, argument};
use crate::isa::{self, Isa, Kernel, Level};
use crate::monitor::{Counter, Monitor};
use crate::scan::Hits;
use ndarray::ArrayView2;
use rayon::prelude::*;

/// The `k` strings of `codes` (n, B) that differ from each of `queries` (nq, B) in the fewest bits; ties go to the
/// lower position. A score is minus the number of differing bits.
///
/// # Errors
/// Strings of different lengths, or the monitor cancels.
pub fn search(
    codes: ArrayView2<'_, u8>,
    queries: ArrayView2<'_, u8>,
    k: usize,
    monitor: &dyn Monitor,
) -> Result<Hits> {
    let (n, bytes) = codes.dim();
    if queries.ncols() != bytes {
        return Err(argument!("queries", "have {} bytes, the codes have {bytes}", queries.ncols()));
    }
    let isa = Isa::current()?;
    let mut hits = Hits::none(queries.nrows(), k, n)?;
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
            // The number of strings at each distance determines how far away the k best are.
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

/// Rows as whole words, padded with zeros.
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
            // A separate case, so that the compiler processes several strings at once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn finds_the_nearest_strings_in_order() {
        for bytes in [1, 7, 8, 9, 20] {
            let byte = |(i, j): (usize, usize)| ((i * 131 + j * 71 + i * i * 7) % 251) as u8;
            let codes = Array2::from_shape_fn((200, bytes), byte);
            let queries = Array2::from_shape_fn((5, bytes), |(i, j)| byte((i + 9, j + 3)));
            let hits = search(codes.view(), queries.view(), 30, &()).unwrap();
            for (q, query) in queries.outer_iter().enumerate() {
                let distance = |row: usize| {
                    codes.row(row).iter().zip(query).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
                };
                let mut order: Vec<usize> = (0..200).collect();
                order.sort_by_key(|&row| (distance(row), row));
                for (place, &row) in order[..30].iter().enumerate() {
                    assert_eq!(hits.positions[[q, place]], row as i64);
                    assert_eq!(hits.scores[[q, place]], -(distance(row) as f32));
                }
            }
        }
    }

    #[test]
    fn strings_of_other_lengths_are_refused_and_missing_ones_marked() {
        let codes = Array2::<u8>::zeros((2, 3));
        assert!(search(codes.view(), Array2::zeros((1, 4)).view(), 1, &()).is_err());
        let hits = search(codes.view(), codes.view(), 3, &()).unwrap();
        assert_eq!(hits.positions.row(0).to_vec(), [0, 1, -1]);
        assert!(search(codes.view(), codes.view(), 0, &()).unwrap().scores.is_empty());
    }
}
