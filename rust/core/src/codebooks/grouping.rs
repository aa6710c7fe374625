//! Codebooks in groups: the codebooks of a group lie in a subspace that is orthogonal to those of the other groups. A
//! few codebooks over all dimensions, the trunk, may come before them; the groups then approximate the residual that
//! the trunk leaves.

use super::{Codebooks, MAX_TOGETHER};
use crate::error::{Result, argument};
use ndarray::{Array2, ArrayView2};

/// Which codebooks belong together, and the subspace of each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    trunk: usize,
    members: Vec<usize>,
    sizes: Vec<usize>,
    basis: Array2<f32>,
}

/// The largest tolerated deviation of a basis from orthonormal columns.
const ROUNDING: f64 = 1e-3;

impl Grouping {
    /// Takes the number of codebooks of each group, `members`, and the dimensions of each group's subspace, `sizes`.
    /// The columns of `basis` (d, Σ d_g) are orthonormal: the first d_1 of them span the subspace of the first group,
    /// and so on.
    ///
    /// # Errors
    /// `members` and `sizes` differ in length, one of them is 0, a group has more than 64 codebooks, or the basis has a
    /// different shape or columns that are not orthonormal.
    pub fn new(members: Vec<usize>, sizes: Vec<usize>, basis: Array2<f32>) -> Result<Self> {
        let total = sizes.iter().try_fold(0usize, |total, &size| total.checked_add(size));
        if members.len() != sizes.len() || members.is_empty() || sizes.contains(&0) {
            return Err(argument!(
                "groups",
                "have {members:?} codebooks and {sizes:?} dimensions: want as many, at least 1 each"
            ));
        }
        if let Some(&many) = members.iter().find(|&members| !(1..=MAX_TOGETHER).contains(members)) {
            return Err(argument!("groups", "have one of {many} codebooks: want 1 to {MAX_TOGETHER}"));
        }
        if total != Some(basis.ncols()) || basis.nrows() < basis.ncols() {
            return Err(argument!(
                "basis",
                "has shape {:?}: want (d, Σ d_g), d at least the sum of {sizes:?}",
                basis.dim()
            ));
        }
        let products = basis.mapv(f64::from);
        let products = products.t().dot(&products);
        let off = products.indexed_iter().map(|((i, j), p)| (p - f64::from(u8::from(i == j))).abs());
        if !off.fold(0.0, |most: f64, off| if off > most || off.is_nan() { off } else { most }).le(&ROUNDING)
        {
            return Err(argument!("basis", "has columns that are not orthonormal"));
        }
        Ok(Self { trunk: 0, members, sizes, basis: basis.as_standard_layout().into_owned() })
    }

    /// Puts `trunk` codebooks over all dimensions before the groups.
    ///
    /// # Errors
    /// `trunk` is above 64, or the basis does not span all dimensions.
    pub fn with_trunk(self, trunk: usize) -> Result<Self> {
        if trunk > MAX_TOGETHER {
            return Err(argument!("trunk", "has {trunk} codebooks: want at most {MAX_TOGETHER}"));
        }
        if trunk > 0 && self.basis.nrows() > self.basis.ncols() {
            return Err(argument!(
                "basis",
                "has shape {:?}: want all d columns beside a trunk",
                self.basis.dim()
            ));
        }
        Ok(Self { trunk, ..self })
    }

    /// The number of codebooks over all dimensions that come before the groups.
    #[must_use]
    pub fn trunk(&self) -> usize {
        self.trunk
    }

    /// The number of codebooks in each group.
    #[must_use]
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// The number of dimensions of each group.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The columns that span the subspaces, (d, Σ d_g).
    #[must_use]
    pub fn basis(&self) -> ArrayView2<'_, f32> {
        self.basis.view()
    }

    /// Rejects groups that do not fit `codebooks`.
    ///
    /// # Errors
    /// The number of codebooks or dimensions differs.
    pub fn check(&self, codebooks: &Codebooks) -> Result<()> {
        let (m, d) = (self.trunk + self.members.iter().sum::<usize>(), self.basis.nrows());
        if (m, d) != (codebooks.n_codebooks(), codebooks.dim()) {
            return Err(argument!(
                "groups",
                "are of {m} codebooks in {d} dimensions: want {} in {}",
                codebooks.n_codebooks(),
                codebooks.dim()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Recipe, Structure};
    use ndarray::{Array3, array};

    #[test]
    fn refuses_what_is_not_groups() {
        let turn = array![[0.6f32, 0.8], [0.8, -0.6]];
        let message = |members: &[usize], sizes: &[usize], basis: &Array2<f32>| {
            Grouping::new(members.to_vec(), sizes.to_vec(), basis.clone()).unwrap_err().to_string()
        };
        assert!(message(&[1], &[1, 1], &turn).contains("want as many"));
        assert!(message(&[], &[], &turn).contains("want as many"));
        assert!(message(&[1, 1], &[2, 0], &turn).contains("at least 1 each"));
        assert!(message(&[65, 1], &[1, 1], &turn).contains("65 codebooks: want 1 to 64"));
        assert!(message(&[0, 1], &[1, 1], &turn).contains("0 codebooks"));
        assert!(message(&[1, 1], &[1, 2], &turn).contains("shape"));
        assert!(message(&[1, 1], &[usize::MAX, 2], &turn).contains("shape"));
        for off in [1.01, 0.0, f32::NAN] {
            assert!(message(&[1, 1], &[1, 1], &(&turn * off)).contains("orthonormal"));
        }
        let grouping = Grouping::new(vec![1, 2], vec![1, 1], turn).unwrap();
        assert!(grouping.clone().with_trunk(65).unwrap_err().to_string().contains("65 codebooks"));
        let thin = Grouping::new(vec![1], vec![1], array![[0.6f32], [0.8]]).unwrap();
        assert!(thin.with_trunk(1).unwrap_err().to_string().contains("all d columns"));
        let trunk = Recipe {
            structure: Structure::Groups(grouping.clone().with_trunk(2).unwrap()),
            ..Recipe::default()
        };
        assert!(trunk.check(&Codebooks::new(Array3::zeros((5, 2, 2))).unwrap()).is_ok());
        assert!(trunk.check(&Codebooks::new(Array3::zeros((3, 2, 2))).unwrap()).is_err());
        let recipe = Recipe { structure: Structure::Groups(grouping), ..Recipe::default() };
        assert!(recipe.check(&Codebooks::new(Array3::zeros((3, 2, 2))).unwrap()).is_ok());
        assert!(recipe.check(&Codebooks::new(Array3::zeros((2, 2, 2))).unwrap()).is_err());
        assert!(recipe.check(&Codebooks::new(Array3::zeros((3, 2, 3))).unwrap()).is_err());
    }
}
