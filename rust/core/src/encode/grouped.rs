//! Encoding with codebooks in groups, each in dimensions of its own: with many codebooks, one Gram matrix of all of them
//! would be too large, and a search over all of them too slow. Time and memory grow linearly with the
//! number of groups.
//!
//! The squared error is the sum of the groups' errors, so each group can be encoded alone. The error along x does not
//! decompose this way: it is the square of a sum,
//!
//! ```text
//! ‖e‖² + β⟨e, u⟩² = Σ_g ‖e_g‖² + β(Σ_g ⟨e_g, x_g⟩ / ‖x‖)²,   u = x/‖x‖, β = η − 1,
//! ```
//!
//! so a group is encoded given what the others leave along x, and all groups are encoded again once the others are
//! known: [`SWEEPS`] times. Only the first sweep can raise the loss.
//!
//! A trunk, codebooks over all dimensions, is encoded before the groups, which then approximate its residual; in the
//! next sweep the trunk is encoded given the groups. It is rotated too, so that trunk and groups work on the same
//! numbers.

use super::errors::errors;
use super::rotation::Rotation;
use super::target::{Rest, StretchedTarget, check_rows};
use super::{Encode, Encoder, Encoding, Improved, Loss, Objective, Start, Target};
use crate::codebooks::{Codebooks, Grouping, Selection};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::parallel;
use crate::vectors::Vectors;
use crate::vectors::basis::Directions;
use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;
use std::ops::Range;

/// Sweeps over the groups if an error along x counts more than other errors.
pub(super) const SWEEPS: usize = 2;
/// Codebooks that are searched in all the rounds of local search. The more there are, the fewer rounds each group takes, so
/// that 16 to 64 codebooks of 256 codewords in groups of 8 take about as long as 8 alone.
const AT_ALL_ROUNDS: usize = 4;
/// The most that rounds are divided by in the first sweep: half as many rounds would find nothing. With the squared
/// error, all sweeps have these.
const MOST: usize = 8;
/// The same if an error along x counts more than others.
const MOST_ALONG: usize = 16;
/// How many times fewer rounds later sweeps then have. Codes that are given, as the last sweep starts from those of the
/// first, need few: four times as many found no more neighbours of text embeddings, and took half as long again.
const LATER: usize = 4;
/// The start of a group's local search: unlike a greedy start, a beam needs no second Gram matrix.
const BEAM: Start = Start::Beam { width: 4 };
/// The approximate number of values in the block of vectors that goes through the groups together.
const NUMBERS: usize = 1 << 22;
/// Vectors whose codewords a thread adds at once.
const CHUNK: usize = 48;

/// Encodes with groups of codebooks in mutually orthogonal subspaces.
pub struct GroupedEncoder {
    /// The codebooks in the space of the vectors, by which errors are measured. Stretched if vectors are.
    codebooks: Codebooks,
    loss: Loss,
    directions: Option<Directions>,
    rotation: Rotation,
    trunk: Option<Group>,
    groups: Vec<Group>,
}

struct Group {
    /// The group's columns of the rotated vectors.
    columns: Range<usize>,
    /// The group's places in the code.
    places: Range<usize>,
    codebooks: Codebooks,
    encoder: Encoder,
    /// Chooses the initial codes of a trunk. Here an error along x counts like any other, since the groups will correct
    /// it: otherwise long approximations would be chosen, which leave larger residuals.
    first: Option<Encoder>,
}

impl Group {
    /// Chooses this group's part of the codes, or improves on the part it has in `codes`.
    fn encode(
        &self,
        target: &Target<'_>,
        again: bool,
        codes: ArrayView2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<u8>> {
        if !again {
            return match &self.first {
                Some(first) => first.encode_target(&Target { rest: None, ..*target }, monitor),
                None => self.encoder.encode_target(target, monitor),
            };
        }
        let mut own = codes.slice(s![.., self.places.clone()]).to_owned();
        self.encoder.improve_target(target, &mut own, monitor)?;
        Ok(own)
    }

    /// Adds the codewords of `codes` to the columns of each row of `sums`.
    fn add(&self, codes: ArrayView2<'_, u8>, sums: &mut Array2<f32>) {
        let width = sums.ncols();
        let rows = sums.as_slice_mut().expect("standard layout").par_chunks_mut(width).enumerate();
        rows.with_min_len(CHUNK).for_each(|(r, sums)| {
            let sums = &mut sums[self.columns.clone()];
            for (m, &k) in codes.slice(s![r, self.places.clone()]).iter().enumerate() {
                let word = self.codebooks.codeword(m, k.into());
                sums.iter_mut().zip(word).for_each(|(sum, c)| *sum += c);
            }
        });
    }
}

/// How each group of a code of `n_codebooks` is encoded in the first sweep, and the rounds of local search in later ones.
fn of_group(encoding: Encoding, loss: Loss, n_codebooks: usize) -> (Encoding, usize) {
    let Encoding::LocalSearch { rounds, seed, .. } = encoding else { return (encoding, 0) };
    let (most, fewer) = if loss == Loss::RECONSTRUCTION { (MOST, 1) } else { (MOST_ALONG, LATER) };
    let share = (n_codebooks / AT_ALL_ROUNDS).clamp(1, most);
    let [first, later] = [share, fewer * share].map(|share| rounds.div_ceil(share));
    (Encoding::LocalSearch { start: BEAM, rounds: first, seed }, later)
}

/// The encoder of a trunk alone, as the first sweep of a [`GroupedEncoder`] of `n_codebooks` has it: training the groups
/// on what its codes leave makes them fit what they will see.
///
/// # Errors
/// The errors of [`encoder`](super::encoder).
pub fn trunk_encoder(
    codebooks: &Codebooks,
    n_codebooks: usize,
    objective: &Objective,
    encoding: Encoding,
) -> Result<Box<dyn Encode>> {
    let plain = Objective { loss: Loss::RECONSTRUCTION, directions: objective.directions.clone() };
    super::encoder(codebooks, Selection::Group, &plain, of_group(encoding, objective.loss, n_codebooks).0)
}

impl Grouping {
    /// The encoder that goes group by group.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn encoder(
        &self,
        codebooks: &Codebooks,
        objective: &Objective,
        encoding: Encoding,
    ) -> Result<GroupedEncoder> {
        self.check(codebooks)?;
        GroupedEncoder::new(codebooks, self, objective, encoding)
    }
}

impl GroupedEncoder {
    /// Builds the encoder of `codebooks` in these groups. If the objective has directions, the stretched codebooks are
    /// the ones that lie in the groups' subspaces.
    pub(crate) fn new(
        codebooks: &Codebooks,
        grouping: &Grouping,
        objective: &Objective,
        encoding: Encoding,
    ) -> Result<Self> {
        let basis = grouping.basis();
        let Objective { loss, directions } = objective.clone();
        let codebooks = match &directions {
            None => codebooks.clone(),
            Some(directions) => directions.stretch(codebooks)?,
        };
        let (encoding, later) = of_group(encoding, loss, codebooks.n_codebooks());
        let group = |columns: Range<usize>, places: Range<usize>, trunk: bool| {
            let axes = basis.slice(s![.., columns.clone()]).mapv(f64::from);
            let words = codebooks.view();
            let words = words.slice(s![places.clone(), .., ..]);
            let ((m, k, d), size) = (words.dim(), columns.len());
            let words = words.to_shape((m * k, d)).expect("contiguous").mapv(f64::from).dot(&axes);
            let words = words.mapv(|x| x as f32).into_shape_with_order((m, k, size)).expect("as many");
            let codebooks = Codebooks::new(words)?;
            let encoder = |loss| {
                let encoder = Encoder::new(&codebooks, Selection::Group)?.with_loss(loss);
                Result::Ok(encoder.with_encoding(encoding).with_later_rounds(later).without_fine_gram())
            };
            let first = (trunk && loss != Loss::RECONSTRUCTION).then(|| encoder(Loss::RECONSTRUCTION));
            let (encoder, first) = (encoder(loss)?, first.transpose()?);
            Ok(Group { columns, places, codebooks, encoder, first })
        };
        let trunk = grouping.trunk();
        let (mut column, mut place) = (0, trunk);
        let groups = grouping.members().iter().zip(grouping.sizes()).map(|(&members, &size)| {
            let (columns, places) = (column..column + size, place..place + members);
            (column, place) = (columns.end, places.end);
            group(columns, places, false)
        });
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let trunk = (trunk > 0).then(|| group(0..basis.ncols(), 0..trunk, true)).transpose()?;
        Ok(Self { rotation: Rotation::new(basis)?, trunk, groups, codebooks, loss, directions })
    }

    /// Encodes the target in the space of the codebooks.
    fn run(
        &self,
        target: &Target<'_>,
        given: bool,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        target.check(self.codebooks.dim())?;
        let n = target.x.n();
        let rows = parallel::rows((NUMBERS / self.codebooks.dim()).clamp(256, 8192));
        for first in (0..n).step_by(rows) {
            let rows = rows.min(n - first);
            monitor.report(first as u64, n as u64)?;
            let check = |_, _| monitor.report(first as u64, n as u64).is_ok();
            let mut block = Block::read(self, target, first, rows)?;
            block.choose(self, given, codes.slice_mut(s![first..first + rows, ..]), &check)?;
        }
        monitor.report(n as u64, n as u64)
    }
}

impl Encode for GroupedEncoder {
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        let mut codes = Array2::zeros((target.x.n(), self.codebooks.n_codebooks()));
        let stretched = self.directions.as_ref().map(|by| StretchedTarget::new(by, target)).transpose()?;
        let target = stretched.as_ref().map_or(*target, StretchedTarget::target);
        self.run(&target, false, &mut codes, monitor)?;
        Ok(codes)
    }

    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved> {
        check_rows(codes.view(), target.x)?;
        self.codebooks.check_codes(codes.view())?;
        let stretched = self.directions.as_ref().map(|by| StretchedTarget::new(by, target)).transpose()?;
        let target = stretched.as_ref().map_or(*target, StretchedTarget::target);
        let before = errors(&self.codebooks, self.loss, target, codes.view(), &())?;
        let mut new = codes.clone();
        self.run(&target, true, &mut new, monitor)?;
        let mut after = errors(&self.codebooks, self.loss, target, new.view(), &())?;
        let rows = codes.outer_iter_mut().zip(new.outer_iter()).zip(before.iter().zip(&mut after));
        for ((mut code, new), (before, after)) in rows {
            if *after < *before {
                code.assign(&new);
            } else {
                *after = *before;
            }
        }
        Ok(Improved { before, after })
    }
}

/// A block of vectors on its way through the groups.
struct Block {
    x: Array2<f32>,
    /// What the approximations start from.
    given: Option<Array2<f32>>,
    /// What the groups' approximations start from: `given`, plus the codewords of the trunk.
    base: Option<Array2<f32>>,
    /// For each row, the length of the whole vector and the error along it outside the groups.
    rest: Vec<Rest>,
    /// ⟨e_g, x_g⟩ for each group and row; 0 if the group is not encoded yet.
    along: Vec<Vec<f64>>,
}

impl Block {
    fn read(encoder: &GroupedEncoder, target: &Target<'_>, first: usize, rows: usize) -> Result<Self> {
        let x = encoder.rotation.rows(target.x, "X", first, rows)?;
        let base = target.base.map(|base| encoder.rotation.rows(base, "base", first, rows)).transpose()?;
        let rest = match target.rest {
            Some(rest) => rest[first..first + rows].to_vec(),
            None => {
                // The basis need not span all dimensions.
                let dim = target.x.dim();
                let mut row = vec![0.0; dim];
                let norm = |r| {
                    target.x.read(first + r, &mut row);
                    row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
                };
                (0..rows).map(norm).map(|norm| Rest { norm, along: 0.0 }).collect()
            }
        };
        let along = vec![vec![0.0; rows]; encoder.groups.len()];
        Ok(Self { x, given: base.clone(), base, rest, along })
    }

    fn choose(
        &mut self,
        encoder: &GroupedEncoder,
        given: bool,
        mut codes: ndarray::ArrayViewMut2<'_, u8>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let coupled = encoder.loss != Loss::RECONSTRUCTION;
        if let Some(trunk) = encoder.trunk.as_ref().filter(|_| given) {
            self.begin_with(trunk, codes.view());
        }
        if given && coupled {
            for (g, group) in encoder.groups.iter().enumerate() {
                let own = codes.slice(s![.., group.places.clone()]).to_owned();
                self.along[g] = self.left(group, &own);
            }
        }
        for sweep in 0..if coupled || encoder.trunk.is_some() { SWEEPS } else { 1 } {
            if let Some(trunk) = &encoder.trunk {
                let again = sweep > 0 || given;
                let mut base = self.given.clone();
                if again {
                    let base = base.get_or_insert_with(|| Array2::zeros(self.x.dim()));
                    encoder.groups.iter().for_each(|group| group.add(codes.view(), base));
                }
                let (x, base) = (self.x.view(), base.as_ref().map(|base| base.view()));
                let target = Target {
                    base: base.as_ref().map(|base| base as &dyn Vectors),
                    rest: coupled.then_some(&self.rest[..]),
                    ..Target::from(&x)
                };
                let own = trunk.encode(&target, again, codes.view(), monitor)?;
                codes.slice_mut(s![.., trunk.places.clone()]).assign(&own);
                self.begin_with(trunk, codes.view());
                if again && coupled {
                    for (g, group) in encoder.groups.iter().enumerate() {
                        let own = codes.slice(s![.., group.places.clone()]).to_owned();
                        self.along[g] = self.left(group, &own);
                    }
                }
            }
            for (g, group) in encoder.groups.iter().enumerate() {
                let mut rest = self.rest.clone();
                for (_, along) in self.along.iter().enumerate().filter(|&(other, _)| other != g) {
                    rest.iter_mut().zip(along).for_each(|(rest, along)| rest.along += along);
                }
                let columns = s![.., group.columns.clone()];
                let x = self.x.slice(columns);
                let base = self.base.as_ref().map(|base| base.slice(columns));
                let target = Target {
                    base: base.as_ref().map(|base| base as &dyn Vectors),
                    rest: coupled.then_some(&rest[..]),
                    ..Target::from(&x)
                };
                let own = group.encode(&target, sweep > 0 || given, codes.view(), monitor)?;
                codes.slice_mut(s![.., group.places.clone()]).assign(&own);
                if coupled {
                    self.along[g] = self.left(group, &own);
                }
            }
        }
        Ok(())
    }

    /// Makes the groups start from what the trunk's codes decode to.
    fn begin_with(&mut self, trunk: &Group, codes: ArrayView2<'_, u8>) {
        let mut base = self.given.clone().unwrap_or_else(|| Array2::zeros(self.x.dim()));
        trunk.add(codes, &mut base);
        self.base = Some(base);
    }

    /// ⟨e_g, x_g⟩ for each row, with the codes (rows, M_g) of a group.
    fn left(&self, group: &Group, codes: &Array2<u8>) -> Vec<f64> {
        let columns = s![.., group.columns.clone()];
        let (x, base) = (self.x.slice(columns), self.base.as_ref().map(|base| base.slice(columns)));
        let of_row = |r: usize| {
            let mut sum = base.map_or_else(|| vec![0.0; x.ncols()], |base| base.row(r).to_vec());
            for (m, &k) in codes.row(r).iter().enumerate() {
                let word = group.codebooks.codeword(m, k.into());
                sum.iter_mut().zip(word).for_each(|(sum, c)| *sum += c);
            }
            let terms = x.row(r);
            terms.iter().zip(&sum).map(|(&x, &sum)| (f64::from(x) - f64::from(sum)) * f64::from(x)).sum()
        };
        (0..x.nrows()).into_par_iter().with_min_len(CHUNK).map(of_row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, Array3};

    const MEMBERS: [usize; 2] = [2, 1];
    const SIZES: [usize; 2] = [3, 2];

    fn pseudo(rows: usize, columns: usize, salt: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, columns), |(i, j)| {
            (((i * 131 + j * 37 + salt) * 2_654_435_761) % 1009) as f32 / 100.0 - 5.0
        })
    }

    /// Reflections at two random planes.
    fn basis(d: usize) -> Array2<f32> {
        let reflection = |salt| {
            let v: Array1<f64> = pseudo(d, 1, salt).column(0).mapv(f64::from);
            let outer = v.view().insert_axis(ndarray::Axis(1)).dot(&v.view().insert_axis(ndarray::Axis(0)));
            Array2::<f64>::eye(d) - outer * (2.0 / v.dot(&v))
        };
        reflection(3).dot(&reflection(8)).mapv(|x| x as f32)
    }

    /// Two codebooks in the first three columns of the basis, one in the other two; six codewords each.
    fn codebooks(basis: &Array2<f32>) -> Codebooks {
        let mut words = Array3::zeros((3, 6, 5));
        for m in 0..3 {
            let own = if m < 2 { 0..3 } else { 3..5 };
            let small = pseudo(6, own.len(), 11 + m);
            words.slice_mut(s![m, .., ..]).assign(&small.dot(&basis.slice(s![.., own]).t()));
        }
        Codebooks::new(words).unwrap()
    }

    fn search(rounds: usize) -> Encoding {
        Encoding::LocalSearch { start: Start::Greedy, rounds, seed: 1 }
    }

    fn encoder(books: &Codebooks, basis: &Array2<f32>, objective: &Objective) -> GroupedEncoder {
        let groups = Grouping::new(MEMBERS.to_vec(), SIZES.to_vec(), basis.clone()).unwrap();
        GroupedEncoder::new(books, &groups, objective, search(512)).unwrap()
    }

    /// The least loss of each row over all codes.
    fn least(books: &Codebooks, loss: Loss, target: Target<'_>) -> Vec<f64> {
        let mut least = vec![f64::INFINITY; target.x.n()];
        for code in 0..216 {
            let code = [code % 6, code / 6 % 6, code / 36];
            let codes = Array2::from_shape_fn((target.x.n(), 3), |(_, m)| code[m] as u8);
            let found = errors(books, loss, target, codes.view(), &()).unwrap();
            least.iter_mut().zip(found).for_each(|(least, found)| *least = least.min(found));
        }
        least
    }

    #[test]
    fn by_the_squared_error_groups_are_encoded_alone() {
        let (x, basis) = (pseudo(70, 5, 1), basis(5));
        let books = codebooks(&basis);
        let codes = encoder(&books, &basis, &Objective::default()).encode(&x.view(), &()).unwrap();
        let (x, loss) = (x.view(), Loss::RECONSTRUCTION);
        let found = errors(&books, loss, &x, codes.view(), &()).unwrap();
        for (found, want) in found.iter().zip(least(&books, loss, Target::from(&x))) {
            assert!(*found <= want * 1.000_01, "{found} for {want}");
        }
    }

    #[test]
    fn the_loss_along_x_is_that_of_the_whole() {
        let (x, base, basis) = (pseudo(70, 5, 1), 0.3 * &pseudo(70, 5, 2), basis(5));
        let books = codebooks(&basis);
        let loss = Loss::inner_product(8.0).unwrap();
        let grouped = encoder(&books, &basis, &loss.into());
        let (x, base) = (x.view(), base.view());
        let rest: Vec<Rest> = (0..70).map(|i| Rest { norm: 9.0, along: f64::from(i % 7) - 3.0 }).collect();
        let whole = Target::from(&x);
        for target in [whole, Target { base: Some(&base), ..whole }, Target { rest: Some(&rest), ..whole }] {
            let codes = grouped.encode_target(&target, &()).unwrap();
            let found = errors(&books, loss, target, codes.view(), &()).unwrap();
            let want = least(&books, loss, target);
            // Each group is optimal given the others; this is usually the optimum overall.
            let best = found.iter().zip(&want).filter(|&(found, want)| *found <= want * 1.000_01).count();
            assert!(best >= 50, "{best} of 70 are best");
            assert!(found.sum() <= 1.1 * want.iter().sum::<f64>());
            let mut given = Array2::zeros((70, 3));
            let improved = grouped.improve_target(&target, &mut given, &()).unwrap();
            let after = errors(&books, loss, target, given.view(), &()).unwrap();
            assert_eq!(improved.after, after);
            assert!(improved.before.iter().zip(&improved.after).all(|(before, after)| after <= before));
        }
    }

    #[test]
    fn directions_stretch_what_lies_in_groups() {
        let (x, basis) = (pseudo(70, 5, 1), basis(5));
        let directions = Directions::new(Array2::from_shape_fn((1, 5), |(_, j)| j as f32 / 3.0)).unwrap();
        let stretched = codebooks(&basis);
        let books = directions.relax(&stretched).unwrap();
        let loss = Loss::inner_product(3.0).unwrap();
        let objective = Objective { loss, directions: Some(directions.clone()) };
        let codes = encoder(&books, &basis, &objective).encode(&x.view(), &()).unwrap();
        let mut moved = x.clone();
        directions.stretched(&x.view()).unwrap().read(0, moved.as_slice_mut().expect("fresh"));
        let plain = encoder(&stretched, &basis, &loss.into()).encode(&moved.view(), &()).unwrap();
        let differ = codes.outer_iter().zip(plain.outer_iter()).filter(|(a, b)| a != b).count();
        assert!(differ <= 2, "{differ} codes differ, of rounding");
    }
}
