//! Codewords that no code uses: training moves them to where they are useful.

use crate::codebooks::Codebooks;
use crate::error::{Result, argument};
use crate::vectors::{Subset, Vectors, read_finite};
use ndarray::{Array2, ArrayView2, s};

/// How many rows that have any weight use each codeword, M·K numbers; for a `shared` codebook K numbers, counting all
/// places. `weights` are 1 if not given.
///
/// # Errors
/// A code is not below K, or there is not one weight per row.
pub fn uses(
    codes: ArrayView2<'_, u8>,
    weights: Option<&[f64]>,
    n_codewords: usize,
    shared: bool,
) -> Result<Vec<u64>> {
    if let Some(weights) = weights.filter(|weights| weights.len() != codes.nrows()) {
        let (entries, rows) = (weights.len(), codes.nrows());
        return Err(argument!("sample_weight", "has {entries} entries, there are {rows} codes"));
    }
    let mut uses = vec![0; if shared { n_codewords } else { codes.ncols() * n_codewords }];
    for (row, code) in codes.outer_iter().enumerate() {
        let counts = weights.is_none_or(|weights| weights[row] > 0.0);
        for (m, &k) in code.iter().enumerate() {
            if usize::from(k) >= n_codewords {
                return Err(argument!("codes", "row {row} names codeword {k}, there are {n_codewords}"));
            }
            uses[if shared { 0 } else { m * n_codewords } + usize::from(k)] += u64::from(counts);
        }
    }
    Ok(uses)
}

/// The rows with the worst approximations.
#[derive(Clone, Debug)]
pub struct Worst {
    /// Their losses, the largest first.
    pub errors: Vec<f64>,
    /// The vectors, (r, d).
    pub vectors: Array2<f32>,
    /// Their codes, (r, M).
    pub codes: Array2<u8>,
}

/// The `count` rows of `x` with the largest `errors`, or fewer, since rows with error 0 are left out. Ties go to the
/// lower row.
///
/// # Errors
/// Shapes that do not fit, or a row that is not finite.
pub fn worst(x: &dyn Vectors, codes: ArrayView2<'_, u8>, errors: &[f64], count: usize) -> Result<Worst> {
    if codes.nrows() != x.n() || errors.len() != x.n() {
        return Err(argument!(
            "codes",
            "have {} rows and errors {} entries, X has {} rows",
            codes.nrows(),
            errors.len(),
            x.n()
        ));
    }
    let mut rows: Vec<usize> = (0..x.n()).filter(|&row| errors[row] > 0.0).collect();
    let count = count.min(rows.len());
    let order = |a: &usize, b: &usize| errors[*b].total_cmp(&errors[*a]).then(a.cmp(b));
    if count > 0 {
        rows.select_nth_unstable_by(count - 1, order);
    }
    rows.truncate(count);
    rows.sort_unstable_by(order);
    let mut vectors = Array2::zeros((count, x.dim()));
    for (i, mut vector) in vectors.outer_iter_mut().enumerate() {
        read_finite(&Subset::new(x, &rows), "X", i, vector.as_slice_mut().expect("fresh"))?;
    }
    let codes = codes.select(ndarray::Axis(0), &rows);
    Ok(Worst { errors: rows.iter().map(|&row| errors[row]).collect(), vectors, codes })
}

/// Moves every codeword without `uses` (M·K, or K for a shared codebook) to a place where it makes one badly
/// approximated vector exact. The rows of `worst` are used in order, each at most once.
///
/// The objective does not change, since no vector uses these codewords yet. With `shared` codebooks all M are changed
/// in the same way.
///
/// # Errors
/// Shapes that do not fit.
pub fn reseed(codebooks: &Codebooks, uses: &[u64], worst: &Worst, shared: bool) -> Result<Codebooks> {
    let (m, k, d) = codebooks.view().dim();
    if uses.len() != if shared { k } else { m * k } {
        return Err(argument!(
            "uses",
            "has {} entries, there are {m} codebooks of {k} codewords",
            uses.len()
        ));
    }
    if worst.vectors.ncols() != d || worst.codes.nrows() != worst.vectors.nrows() {
        let (vectors, codes) = (worst.vectors.dim(), worst.codes.dim());
        return Err(argument!(
            "vectors",
            "have shape {vectors:?} and codes {codes:?}: want (r, {d}) and (r, {m})"
        ));
    }
    codebooks.check_codes(worst.codes.view())?;
    let mut data = codebooks.clone().into_inner();
    let unused = (0..uses.len()).filter(|&codeword| uses[codeword] == 0);
    for ((vector, code), codeword) in worst.vectors.outer_iter().zip(worst.codes.outer_iter()).zip(unused) {
        let (book, word) = (codeword / k, codeword % k);
        let mut row = vector.to_owned();
        for (i, &code) in code.iter().enumerate().filter(|&(i, _)| i != book) {
            row.iter_mut().zip(codebooks.codeword(i, usize::from(code))).for_each(|(x, c)| *x -= c);
        }
        for book in if shared { 0..m } else { book..book + 1 } {
            data.slice_mut(s![book, word, ..]).assign(&row);
        }
    }
    Codebooks::new(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn an_unused_codeword_moves_to_the_worst_vector() {
        let codebooks = Codebooks::new(array![[[0.0], [9.0]], [[1.0], [2.0]]]).unwrap();
        let x = array![[1.0f32], [7.0]];
        let codes = array![[0u8, 0], [0, 1]];
        let uses = uses(codes.view(), None, 2, false).unwrap();
        assert_eq!(uses, [2, 0, 1, 1]);
        assert_eq!(super::uses(codes.view(), Some(&[0.0, 0.5]), 2, false).unwrap(), [1, 0, 0, 1]);
        assert!(super::uses(codes.view(), Some(&[1.0]), 2, false).is_err());
        let worst = worst(&x.view(), codes.view(), &[0.0, 25.0], 3).unwrap();
        assert_eq!(
            (&worst.errors[..], &worst.vectors, &worst.codes),
            (&[25.0][..], &array![[7.0]], &array![[0, 1]])
        );
        let moved = reseed(&codebooks, &uses, &worst, false).unwrap();
        assert_eq!(moved.view(), array![[[0.0], [5.0]], [[1.0], [2.0]]]);
        assert!(reseed(&codebooks, &uses[1..], &worst, false).is_err());
    }
}
