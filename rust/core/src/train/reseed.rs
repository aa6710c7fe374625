//! Codewords that no code uses: training moves them to where they are of use.

use crate::codebooks::Codebooks;
use crate::error::{Result, invalid};
use crate::train::equations::check;
use crate::vectors::{Subset, Vectors, read_finite};
use ndarray::{ArrayView2, s};

/// Gives every codeword that no code uses a new place: where it makes one badly approximated vector exact. Vectors with
/// the largest `errors` come first, each serves once. Returns how many codewords moved.
///
/// The objective does not change by it, since no vector uses these codewords yet. With `shared` codebooks all M are
/// changed alike.
///
/// # Errors
/// Shapes that do not fit.
pub fn reseed(
    codebooks: &Codebooks,
    x: &dyn Vectors,
    codes: ArrayView2<'_, u8>,
    errors: &[f64],
    shared: bool,
) -> Result<(Codebooks, usize)> {
    let (m, k, d) = codebooks.view().dim();
    check(x, codes, k, Some(errors)).map_err(|_| invalid!("codes, errors and X do not fit each other"))?;
    codebooks.check_codes(codes)?;
    let mut used = vec![false; m * k];
    for row in codes.rows() {
        for (i, &code) in row.iter().enumerate() {
            used[if shared { 0 } else { i * k } + usize::from(code)] = true;
        }
    }
    let unused: Vec<usize> = (0..if shared { k } else { m * k }).filter(|&i| !used[i]).collect();
    let mut worst: Vec<usize> = (0..x.n()).filter(|&row| errors[row] > 0.0).collect();
    let count = unused.len().min(worst.len());
    if count == 0 {
        return Ok((codebooks.clone(), 0));
    }
    let order = |a: &usize, b: &usize| errors[*b].total_cmp(&errors[*a]).then(a.cmp(b));
    worst.select_nth_unstable_by(count - 1, order);
    worst.truncate(count);
    worst.sort_unstable_by(order);
    let chosen = Subset::new(x, &worst);
    let mut data = codebooks.clone().into_inner();
    let mut row = vec![0.0; d];
    for (r, &codeword) in unused[..count].iter().enumerate() {
        let (book, word) = (codeword / k, codeword % k);
        read_finite(&chosen, "X", r, &mut row)?;
        for (i, &code) in codes.row(worst[r]).iter().enumerate().filter(|&(i, _)| i != book) {
            row.iter_mut().zip(codebooks.codeword(i, usize::from(code))).for_each(|(x, c)| *x -= c);
        }
        for book in if shared { 0..m } else { book..book + 1 } {
            data.slice_mut(s![book, word, ..]).iter_mut().zip(&row).for_each(|(c, &x)| *c = x);
        }
    }
    Ok((Codebooks::new(data)?, count))
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
        let (moved, count) = reseed(&codebooks, &x.view(), codes.view(), &[0.0, 25.0], false).unwrap();
        assert_eq!(count, 1);
        assert_eq!(moved.view(), array![[[0.0], [5.0]], [[1.0], [2.0]]]);
    }
}
