//! A trained model: what encoding, decoding and searching need.

mod errors;
mod recipe;
mod subspaces;

pub use crate::codebooks::Grouping;
use crate::codebooks::{Codebooks, Selection};
pub(crate) use crate::encode::checked_lists;
use crate::encode::{self, Encode, Objective, OfUnit, Target};
pub use crate::encode::{Centroids, Gap, MAX_LISTS, Reached};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::Training;
use crate::vectors::Vectors;
use crate::vectors::metric::Metric;
use ndarray::{Array2, ArrayView2, Axis};
pub use recipe::{Recipe, Structure};
use serde_json::{Map, Value};
pub use subspaces::Subspaces;

/// Codebooks, how codewords are chosen from them, and how vectors are encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The codebooks, (M, K, d).
    pub codebooks: Codebooks,
    /// The scheme.
    pub selection: Selection,
    /// How vectors are encoded.
    pub recipe: Recipe,
    /// Data that a trainer wants to store. Files keep it; nothing in this crate reads it. The Python package stores its
    /// parameters and the history of the training here.
    pub parameters: Map<String, Value>,
    /// The first codebook, if an index is divided into lists: x ≈ centroid + Σ codewords, except with
    /// [`Centroids::of_whole`].
    pub centroids: Option<Centroids>,
}

impl Model {
    /// A model of codebooks whose training is not known. It encodes with the default [`Recipe`]: local search for the
    /// squared error. [`trained`](Self::trained) makes one that encodes as it was trained.
    #[must_use]
    pub fn new(codebooks: Codebooks, selection: Selection) -> Self {
        Self::with(codebooks, selection, Recipe::default())
    }

    /// A model that encodes by `recipe`.
    #[must_use]
    pub fn with(codebooks: Codebooks, selection: Selection, recipe: Recipe) -> Self {
        Self { codebooks, selection, recipe, parameters: Map::new(), centroids: None }
    }

    /// The model of codebooks that [`train`](crate::train::train) returned: it encodes with the loss and the encoding
    /// of the training.
    #[must_use]
    pub fn trained(codebooks: Codebooks, training: &Training) -> Self {
        let Objective { loss, directions } = training.objective.clone();
        let recipe = Recipe { loss, directions, encoding: training.encoding, ..Recipe::default() };
        Self::with(codebooks, training.selection, recipe)
    }

    /// Whether both models have the same lists, or both have none, ignoring what only affects searches.
    pub(crate) fn is_divided_like(&self, other: &Self) -> bool {
        match (&self.centroids, &other.centroids) {
            (None, None) => true,
            (Some(a), Some(b)) => a.view() == b.view() && a.by_residual() == b.by_residual(),
            _ => false,
        }
    }

    /// The centroids that approximations start from, if there are any.
    pub(crate) fn bases(&self) -> Option<&Centroids> {
        self.centroids.as_ref().filter(|centroids| centroids.by_residual())
    }

    /// The approximations of codes (n, M): sums of codewords in the order m = 0 … M−1, (n, d). With centroids, each sum
    /// starts from the centroid of the vector's list, given by `lists` (n).
    ///
    /// # Errors
    /// See [`Codebooks::check_codes`]; lists for a model without centroids, or no lists for one with centroids; or the
    /// monitor cancels.
    pub fn decode(
        &self,
        codes: ArrayView2<'_, u8>,
        lists: Option<&[u32]>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<f32>> {
        let lists = checked_lists(self.centroids.as_ref(), lists, codes.nrows())?;
        let (Some(centroids), Some(lists)) = (self.bases(), lists) else {
            return self.codebooks.decode(codes, monitor);
        };
        let rows: Vec<usize> = lists.iter().map(|&list| list as usize).collect();
        let mut sums = centroids.view().select(Axis(0), &rows);
        self.codebooks.add_decoded(codes, sums.view_mut(), monitor)?;
        Ok(sums)
    }

    /// The codes of `x` (n, d) by `encoder`, which must be that of the model; with centroids, for vectors in these
    /// lists.
    ///
    /// # Errors
    /// The errors of the encoder.
    pub(crate) fn encode_with(
        &self,
        encoder: &dyn Encode,
        x: &dyn Vectors,
        lists: Option<&[u32]>,
        monitor: &dyn Monitor,
    ) -> Result<Array2<u8>> {
        match (self.bases(), lists) {
            (Some(centroids), Some(lists)) => centroids.with_bases(lists, |base| {
                encoder.encode_target(&Target { base: Some(base), ..Target::from(x) }, monitor)
            }),
            _ => encoder.encode(x, monitor),
        }
    }

    /// The encoder of the recipe, prepared once for many vectors.
    ///
    /// # Errors
    /// See [`encode::encoder`] and [`Recipe::check`].
    pub fn encoder(&self) -> Result<Box<dyn Encode>> {
        let Recipe { loss, encoding, directions, metric, structure } = &self.recipe;
        self.recipe.check(&self.codebooks)?;
        let encoder: Box<dyn Encode> = match structure {
            Structure::Subspaces(subspaces) => Box::new(subspaces.encoder(&self.codebooks)?),
            Structure::Signs => Box::new(subspaces::signs(&self.codebooks)?),
            Structure::Groups(grouping) => {
                let objective = Objective { loss: *loss, directions: directions.clone() };
                Box::new(grouping.encoder(&self.codebooks, &objective, *encoding)?)
            }
            Structure::Free => {
                let objective = Objective { loss: *loss, directions: directions.clone() };
                encode::encoder(&self.codebooks, self.selection, &objective, *encoding)?
            }
        };
        Ok(if *metric == Some(Metric::Cosine) { Box::new(OfUnit(encoder)) } else { encoder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Encoder, Encoding, Loss, Start};
    use crate::vectors::basis::Directions;
    use ndarray::{Array2, Array3, array};

    #[test]
    fn the_encoder_is_that_of_the_recipe() {
        let codebooks =
            Codebooks::new(Array3::from_shape_vec((1, 2, 2), vec![0.0, 1.0, 3.0, 0.0]).unwrap()).unwrap();
        let mut model = Model::new(codebooks, Selection::Group);
        let x = array![[1.0f32, 0.0]];
        let codes = |model: &Model| model.encoder().unwrap().encode(&x.view(), &()).unwrap();
        assert_eq!(codes(&model), array![[0]]);
        // The error of the first, (1, −1), counts more along the second axis; the other's, (−2, 0), does not.
        model.recipe.directions = Some(Directions::new(array![[0.0, 2.0]]).unwrap());
        assert_eq!(codes(&model), array![[1]]);
        model.recipe.directions = None;
        // Scaled to length 1 the vector is still nearer to (0, 1) than to (3, 0), but (9, 1) is not.
        let rays = array![[9.0f32, 1.0], [9e9, 1e9], [0.0, 0.0]];
        let far = |model: &Model| model.encoder().unwrap().encode(&rays.view(), &()).unwrap();
        assert_eq!(far(&model), array![[1], [1], [0]]);
        model.recipe.metric = Some(Metric::Cosine);
        assert_eq!(far(&model), array![[0], [0], [0]]);
        model.recipe.metric = None;
        // In the first dimension alone the first codeword is nearer again.
        let subspaces = Subspaces::new(vec![1], Some(array![[1.0f32], [0.0]])).unwrap();
        model.recipe.structure = Structure::Subspaces(subspaces);
        assert_eq!(codes(&model), array![[0]]);
        model.recipe.structure = Structure::Signs;
        assert!(model.encoder().is_err());
    }

    #[test]
    fn a_trained_model_encodes_as_it_was_trained() {
        let x =
            Array2::from_shape_fn((300, 6), |(i, j)| ((i * 31 + j * 17) % 101) as f32 + (i * j % 7) as f32);
        let training = Training {
            n_codebooks: 3,
            n_codewords: 12,
            encoding: Encoding::LocalSearch { start: Start::Greedy, rounds: 4, seed: 7 },
            objective: Loss::inner_product(5.0).unwrap().into(),
            ..Training::default()
        };
        let trained = crate::train::train(&x.view(), &training, &()).unwrap();
        let encoder = Encoder::new(&trained.codebooks, Selection::Group).unwrap();
        let encoder = encoder.with_loss(training.objective.loss).with_encoding(training.encoding);
        let want = encoder.encode(&x.view(), &()).unwrap();
        let model = Model::trained(trained.codebooks, &training);
        let mut index = crate::Index::new(model.clone());
        index.add(&x.view(), None, &()).unwrap();
        assert_eq!(index.codes(), want);
        let plain = Model::new(model.codebooks, model.selection);
        assert_ne!(plain.encoder().unwrap().encode(&x.view(), &()).unwrap(), want);
    }
}
