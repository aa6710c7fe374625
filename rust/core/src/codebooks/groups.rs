//! Which dimensions each codebook uses. Codebooks that share no dimension belong to different groups: their codewords
//! are orthogonal, so encoding, Gram matrices and updates decompose by group.

use ndarray::ArrayView3;
use std::ops::Range;

/// Codebooks grouped by the dimensions they use: those of one group overlap, those of different groups do not.
///
/// Product quantizers have M groups of one codebook; unconfined codebooks, and rotated ones, are one group of all
/// dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    of_codebook: Vec<usize>,
    dimensions: Vec<Range<usize>>,
}

impl Groups {
    /// Finds the groups of codebooks (M, K, d): a codebook uses the dimensions from the first to the last in which some
    /// codeword is not 0. Groups are numbered by their first codebook.
    pub(super) fn of(codebooks: ArrayView3<'_, f32>) -> Self {
        let (m, _, d) = codebooks.dim();
        let used: Vec<_> = codebooks
            .outer_iter()
            .map(|book| {
                let (mut first, mut last) = (d, 0);
                for word in book.outer_iter() {
                    if let Some(at) = word.iter().take(first).position(|&value| value != 0.0) {
                        first = at;
                    }
                    if let Some(at) = word.iter().skip(last).rposition(|&value| value != 0.0) {
                        last += at + 1;
                    }
                }
                first.min(last)..last
            })
            .collect();
        // In the order of their dimensions, each codebook joins the previous group if that group reaches into it.
        let mut order: Vec<usize> = (0..m).collect();
        order.sort_by_key(|&m| (used[m].is_empty(), used[m].start, m));
        let mut merged: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        for m in order {
            match merged.last_mut() {
                Some((range, members)) if !used[m].is_empty() && used[m].start < range.end => {
                    range.end = range.end.max(used[m].end);
                    members.push(m);
                }
                _ => merged.push((used[m].clone(), vec![m])),
            }
        }
        merged.sort_by_key(|(_, members)| members.iter().min().copied());
        let mut of_codebook = vec![0; m];
        for (group, (_, members)) in merged.iter().enumerate() {
            members.iter().for_each(|&m| of_codebook[m] = group);
        }
        Self { of_codebook, dimensions: merged.into_iter().map(|(range, _)| range).collect() }
    }

    /// The number of groups: 1 where all codebooks belong together.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.dimensions.len()
    }

    /// The group of codebook `m`.
    #[must_use]
    pub fn of_codebook(&self, m: usize) -> usize {
        self.of_codebook[m]
    }

    /// The dimensions outside which every codeword of group `group` is 0.
    #[must_use]
    pub fn dimensions(&self, group: usize) -> Range<usize> {
        self.dimensions[group].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array3, s};

    fn groups(used: &[Range<usize>]) -> Groups {
        let mut codebooks = Array3::<f32>::zeros((used.len(), 3, 8));
        for (m, used) in used.iter().enumerate() {
            // The first and the last dimension are used by different codewords, and one between them by none.
            if !used.is_empty() {
                codebooks[[m, 1, used.start]] = 1.0;
                codebooks[[m, 2, used.end - 1]] = -1.0;
            }
        }
        Groups::of(codebooks.slice(s![.., .., ..]))
    }

    #[test]
    fn codebooks_that_share_a_dimension_are_a_group() {
        let found = groups(&[4..6, 0..3, 2..4, 6..8]);
        assert_eq!(found.of_codebook, [0, 1, 1, 2]);
        assert_eq!(found.dimensions, [4..6, 0..4, 6..8]);
        assert_eq!((0..found.len()).map(|group| found.dimensions(group).len()).sum::<usize>(), 8);
        assert_eq!(groups(&[0..8, 3..4, 7..8]).len(), 1);
        // A codebook of zeros uses nothing.
        assert_eq!(groups(&[0..8, 0..0]).dimensions(1), 0..0);
    }
}
