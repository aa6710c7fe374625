//! Training: codebooks given codes and codes given codebooks, alternating until the objective settles.
//!
//! The steps are here, one module each; [`train`] combines them for programs without the Python layer, which has its
//! own loop over the same steps and solves with numpy.

pub mod anneal;
pub mod applied;
pub mod coded;
pub mod equations;
pub mod halves;
pub mod init;
pub mod kmeans;
pub mod lists;
pub mod moments;
pub mod noiseless;
mod parameters;
pub mod parts;
mod progress;
pub mod reseed;
mod shards;
pub mod weights;

pub use crate::linalg::conjugate::multiply;
pub use parameters::{Init, Training};
pub use shards::{Local, Shards};

use crate::codebooks::Codebooks;
use crate::encode::{Centroids, Encode, Encoding, Loss, Objective, encoder};
use crate::error::Result;
use crate::linalg::conjugate::System;
use crate::monitor::Monitor;
use crate::vectors::Vectors;
use anneal::{pass_seed, perturbed};
use moments::{Moments, pull};
use ndarray::{Array2, Axis};
use progress::{PassProgress, Share};
use std::cell::Cell;

/// Share of the variance below which a loss is considered rounding.
const EXACT: f64 = 1e-12;
/// The number of the pass that chooses codes anew, which no other pass has.
const ANEW: u64 = 1 << 35;

/// The result of training.
#[derive(Clone, Debug)]
pub struct Trained<C = Array2<u8>> {
    /// The codebooks.
    pub codebooks: Codebooks,
    /// The codes of the training vectors, (n, M).
    pub codes: C,
    /// The mean loss after each iteration, beginning with that of the start: it never rises.
    pub history: Vec<f64>,
}

/// Learns codebooks for `x` (n, d).
///
/// # Errors
/// Arguments out of range, a row that is not finite, or the monitor cancels; it is told of every pass over `x`.
pub fn train(x: &dyn Vectors, training: &Training, monitor: &dyn Monitor) -> Result<Trained> {
    let local = Local::new(x, None)?;
    let directions = training.objective.directions.as_ref();
    train_on(&local.weighted_by_norm(training.weight_power, directions, monitor)?, training, monitor)
}

/// Learns codebooks for the residuals of `x` (n, d) from the centroids of lists; also returns the list of each vector,
/// that of least loss. An error counts along the vector, not along its residual.
///
/// ```
/// use compcodes::train::{Training, lists, train_in_lists};
/// use compcodes::{Index, Model, Selection};
/// use ndarray::Array2;
/// let x = Array2::from_shape_fn((400, 4), |(i, j)| ((i * 31 + j * 17) % 101) as f32);
/// let centroids = lists::balanced(&x.view(), 10, Default::default(), None, 0, &())?;
/// let training = Training { n_codebooks: 2, n_codewords: 16, anneal: 2, ..Training::reconstruction() };
/// let (trained, lists) = train_in_lists(&x.view(), &centroids, &training, &())?;
/// let mut model = Model::new(trained.codebooks, Selection::Group);
/// model.centroids = Some(centroids);
/// let mut index = Index::new(model);
/// index.add(&x.view(), None, &())?;
/// assert_eq!(index.lists(), Some(lists));
/// # Ok::<(), compcodes::Error>(())
/// ```
///
/// # Errors
/// The errors of [`train`], or centroids with a different d.
pub fn train_in_lists(
    x: &dyn Vectors,
    centroids: &Centroids,
    training: &Training,
    monitor: &dyn Monitor,
) -> Result<(Trained, Vec<u32>)> {
    let found = centroids.assign(x, None, monitor)?;
    let directions = training.objective.directions.as_ref();
    let local = Local::new(x, None)?.in_lists(centroids, &found, training.objective.loss)?;
    let local = local.weighted_by_norm(training.weight_power, directions, monitor)?;
    Ok((train_on(&local, training, monitor)?, found))
}

/// Like [`train`], for vectors that lie anywhere, and count by the weights they have there.
///
/// # Errors
/// The errors of [`train`].
pub fn train_on<S: Shards>(
    shards: &S,
    training: &Training,
    monitor: &dyn Monitor,
) -> Result<Trained<S::Codes>> {
    let n = shards.weighing();
    let Some(noiseless) = training.without_noise(n, shards.shape().1) else {
        return train_once(shards, training, monitor);
    };
    let passes = [training, &noiseless].map(|own| (own.annealed() + own.iterations(n) + 2) as u64);
    let told = |before, own| Share { monitor, before, own, all: passes[0] + passes[1] };
    let still = told(passes[0], 0);
    let anew = |trained: &Trained<S::Codes>| -> Result<f64> {
        let Training { selection, objective, seed, encoding, .. } = training;
        let encoding = encoding.for_training(pass_seed(*seed, ANEW));
        let codes = shards.encode(&*encoder(&trained.codebooks, *selection, objective, encoding)?, &still)?;
        shards.loss(objective, &trained.codebooks, &codes, &still)
    };
    let first = train_once(shards, training, &told(0, passes[0]))?;
    let (lost, moments) = (anew(&first)?, shards.moments(training.objective.directions.as_ref(), &still)?);
    if lost <= EXACT * moments.variance() * moments.weight {
        return Ok(first);
    }
    let second = train_once(shards, &noiseless, &told(passes[0], passes[1]))?;
    Ok(if noiseless::wins(n, training.n_codewords, anew(&second)?, lost) { second } else { first })
}

/// One training: see [`train_on`].
fn train_once<S: Shards>(
    shards: &S,
    training: &Training,
    monitor: &dyn Monitor,
) -> Result<Trained<S::Codes>> {
    let n = shards.weighing();
    let saved = if training.in_halves(n) { halves::iterations(training.annealed()) } else { 0 };
    let most = training.iterations(n);
    let passes = (training.annealed() - saved + most + 2) as u64;
    let pass = Cell::new(0);
    let run = TrainingRun::new(shards, training, monitor, passes, &pass)?;
    let (mut codebooks, mut codes) = run.start()?;
    let mut partial = false;
    // If there are no more vectors than codewords, the start is exact, and nothing is left to learn.
    let exact = run.objective(&codebooks, &codes)? <= EXACT * run.variance;
    for iteration in saved..if exact { saved } else { training.annealed() } {
        match shards.part(&codes, training.n_codewords, training.seed, iteration)? {
            None => (codebooks, codes) = run.annealed(&codebooks, &codes, iteration)?,
            Some((part, own)) => {
                let own = {
                    let run = TrainingRun::new(&part, training, monitor, passes, &pass)?;
                    let (better, own) = run.annealed(&codebooks, &own, iteration)?;
                    codebooks = better;
                    own
                };
                shards.put(&mut codes, &part, &own);
                partial = true;
            }
        }
    }
    if partial {
        // Some codes are for codebooks of long ago.
        codes = run.pass(&codebooks, |encoder, monitor| {
            shards.renewed(encoder, &training.objective, &codebooks, codes, monitor)
        })?;
    }
    let mut history = vec![run.objective(&codebooks, &codes)?];
    for iteration in 0..if exact { 0 } else { most } {
        let before = history[iteration];
        let better = run.update(&codebooks, &codes, before)?;
        let (better_codes, now) = run.improve(&better, &codes)?;
        // The pull of codewords to their mean can cost more than new codes gain: what remains would be overfitting.
        if now > before {
            break;
        }
        (codebooks, codes) = (better, better_codes);
        history.push(now);
        if before - now <= training.tolerance * before {
            break;
        }
    }
    Ok(Trained { codebooks, codes, history })
}

/// The state of a training run.
struct TrainingRun<'a, S> {
    shards: &'a S,
    training: &'a Training,
    moments: Moments,
    variance: f64,
    monitor: &'a dyn Monitor,
    passes: u64,
    pass: &'a Cell<u64>,
}

impl<'a, S: Shards> TrainingRun<'a, S> {
    fn new(
        shards: &'a S,
        training: &'a Training,
        monitor: &'a dyn Monitor,
        passes: u64,
        pass: &'a Cell<u64>,
    ) -> Result<Self> {
        let moments = shards.moments(None, monitor)?;
        let variance = match &training.objective.directions {
            None => moments.variance(),
            directions => shards.moments(directions.as_ref(), monitor)?.variance(),
        };
        Ok(Self { shards, training, moments, variance, monitor, passes, pass })
    }

    /// Codebooks for `codes`, and codes for these codebooks with noise.
    fn annealed(
        &self,
        codebooks: &Codebooks,
        codes: &S::Codes,
        iteration: usize,
    ) -> Result<(Codebooks, S::Codes)> {
        let Training { selection, seed, .. } = self.training;
        let better = self.update(codebooks, codes, self.objective(codebooks, codes)?)?;
        let deviation = self.moments.deviation();
        let deviation = deviation.as_slice().expect("contiguous");
        let (shared, iterations) = (selection.is_shared(), self.training.annealed());
        let noisy = perturbed(&better, deviation, shared, *seed, iteration, iterations)?;
        Ok((better, self.improve(&noisy, codes)?.0))
    }

    fn start(&self) -> Result<(Codebooks, S::Codes)> {
        let &Training { n_codebooks: m, n_codewords: k, selection, seed, .. } = self.training;
        let (n, d) = self.shards.shape();
        let in_halves = self.training.in_halves(self.shards.weighing());
        let sample = || self.shards.sample(&init::sample_rows(n, d, self.shards.weights(), k, seed));
        let codebooks = match &self.training.init {
            Init::Codebooks(codebooks) => codebooks.clone(),
            Init::Random => init::random_vectors(&sample()?.view(), m, k, selection, seed)?,
            Init::Residual if in_halves => self.halves()?,
            Init::Residual => {
                let sample = sample()?;
                let start = |x: &dyn Vectors| init::residual_kmeans(x, m, k, selection, seed, &self.quiet());
                init::along(&sample.view(), self.training.objective.directions.as_ref(), start)?
            }
        };
        // Iterations with noise will improve the codes of their parts.
        let encoding = if in_halves { Encoding::Greedy } else { self.training.encoding };
        let work = |encoder: &dyn Encode, monitor: &dyn Monitor| self.shards.encode(encoder, monitor);
        let codes = self.pass_with(encoding, &codebooks, work)?;
        Ok((codebooks, codes))
    }

    /// Codebooks whose first half is trained on a sample of the vectors, and the other on what that leaves.
    fn halves(&self) -> Result<Codebooks> {
        let &Training { n_codebooks: m, n_codewords: k, selection, encoding, seed, .. } = self.training;
        let (n, d) = self.shards.shape();
        let (rows, weights) = halves::sample(n, d, self.shards.weights(), k, seed)?;
        let mut x = self.shards.sample(&rows)?;
        let directions = self.training.objective.directions.clone();
        let half = |x: &Array2<f32>, n_codebooks, seed| {
            let training = Training {
                n_codebooks,
                objective: Objective { loss: Loss::RECONSTRUCTION, directions: directions.clone() },
                anneal: halves::iterations(self.training.annealed()),
                noiseless: false,
                max_iter: Some(halves::ITERATIONS),
                tolerance: 0.0,
                seed,
                ..self.training.clone()
            };
            let x = x.view();
            let trained = train_on(&Local::new(&x, weights.clone())?, &training, &self.quiet())?;
            Result::Ok((trained.codebooks, training.objective))
        };
        let (first, objective) = half(&x, m - m / 2, seed)?;
        let encoding = encoding.for_training(pass_seed(seed, halves::PASS));
        let codes = encoder(&first, selection, &objective, encoding)?.encode(&x.view(), &self.quiet())?;
        x -= &first.decode(codes.view(), &self.quiet())?;
        if x.iter().any(|x| !x.is_finite()) {
            return Err(equations::too_large());
        }
        let (second, _) = half(&x, m / 2, seed.wrapping_add(1))?;
        let both = ndarray::concatenate(Axis(0), &[first.view(), second.view()]).expect("equal shapes");
        Codebooks::new(both)
    }

    /// Improved codes, and the objective.
    fn improve(&self, codebooks: &Codebooks, codes: &S::Codes) -> Result<(S::Codes, f64)> {
        let (codes, loss) =
            self.pass(codebooks, |encoder, monitor| self.shards.improve(encoder, codes, monitor))?;
        Ok((codes, loss / self.moments.weight))
    }

    fn objective(&self, codebooks: &Codebooks, codes: &S::Codes) -> Result<f64> {
        let loss = self.shards.loss(&self.training.objective, codebooks, codes, &self.quiet())?;
        Ok(loss / self.moments.weight)
    }

    /// The best codebooks for `codes`, or better ones if the loss has no closed form; unused codewords are moved to
    /// where they help.
    fn update(&self, previous: &Codebooks, codes: &S::Codes, objective: f64) -> Result<Codebooks> {
        let Training { objective: target, selection, ridge, shrinkage, .. } = self.training;
        let (m, k, shared) = (previous.n_codebooks(), previous.n_codewords(), selection.is_shared());
        let pull = pull(*shrinkage, m, objective, self.variance, self.moments.mean_weight());
        let directions = target.directions.as_ref();
        let codebooks = if target.loss == Loss::RECONSTRUCTION {
            let start = equations::unknowns(previous, shared);
            let equations = self.shards.equations(codes, k, &self.quiet())?;
            let mut equations = if shared { equations.shared(k) } else { equations };
            equations.pull(pull, start.view(), k);
            equations::codebooks(&equations.solve(start.view(), *ridge, &self.quiet())?, m, k)?
        } else {
            let stretched = directions.map(|directions| directions.stretch(previous)).transpose()?;
            let start = equations::unknowns(stretched.as_ref().unwrap_or(previous), shared);
            let (uses, mut b) = self.shards.sides(codes, k, shared, directions, &self.quiet())?;
            // uuᵀx = x: the right side for the inner-product loss is η times that of the plain loss.
            if !self.shards.are_weighed() {
                b *= target.loss.eta();
            }
            equations::pull(&mut b, &uses, pull, start.view(), k);
            let extra = target.loss.extra();
            // The term along x adds approximately that share.
            let diagonal = &uses * (1.0 + extra / start.ncols() as f64) + pull;
            let lambda = equations::lambda(*ridge, uses.sum() / uses.len() as f64 + pull);
            let apply = |p: &Array2<f64>| {
                let image = self.shards.apply(codes, p, k, extra, directions, &self.quiet())?;
                Ok(image + pull * p)
            };
            let system = System { apply: &apply, b, diagonal, lambda };
            let codebooks = equations::codebooks(&system.descend(start)?, m, k)?;
            directions.map_or(Ok(codebooks.clone()), |directions| directions.relax(&codebooks))?
        };
        let uses = self.shards.uses(codes, k, shared)?;
        match uses.iter().filter(|&&count| count == 0).count() {
            0 => Ok(codebooks),
            unused => {
                let worst = self.shards.worst(target, &codebooks, codes, unused, &self.quiet())?;
                reseed::reseed(&codebooks, &uses, &worst, shared)
            }
        }
    }

    /// One pass over the vectors with the encoder for `codebooks`; progress is reported as part of the whole.
    fn pass<T>(
        &self,
        codebooks: &Codebooks,
        work: impl FnOnce(&dyn Encode, &dyn Monitor) -> Result<T>,
    ) -> Result<T> {
        self.pass_with(self.training.encoding, codebooks, work)
    }

    /// A [`pass`](Self::pass) with another encoding.
    fn pass_with<T>(
        &self,
        encoding: Encoding,
        codebooks: &Codebooks,
        work: impl FnOnce(&dyn Encode, &dyn Monitor) -> Result<T>,
    ) -> Result<T> {
        let &Training { selection, seed, ref objective, .. } = self.training;
        let pass = self.pass.replace(self.pass.get() + 1);
        let encoder = encoder(codebooks, selection, objective, encoding.for_training(pass_seed(seed, pass)))?;
        let passes = self.passes;
        work(&*encoder, &PassProgress { monitor: self.monitor, pass, passes })
    }

    /// A monitor for work within a pass, which only checks whether to go on.
    fn quiet(&self) -> impl Monitor + '_ {
        let (pass, passes) = (self.pass.get(), self.passes);
        let monitor = self.monitor;
        move |_, _| monitor.report(pass, passes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::Selection;
    use crate::encode::Start;
    use crate::error::Error;
    use crate::vectors::basis::Directions;
    use ndarray::array;

    fn pseudo(n: usize, d: usize) -> Array2<f32> {
        Array2::from_shape_fn((n, d), |(i, j)| ((i * 31 + j * 17) % 101) as f32 + (i * j % 7) as f32)
    }

    #[test]
    fn the_objective_never_rises_and_is_the_error_of_what_is_returned() {
        let x = pseudo(400, 6);
        for selection in Selection::ALL {
            let search = Encoding::LocalSearch { start: Start::Greedy, rounds: 2, seed: 1 };
            let along: Objective = Loss::inner_product(5.0).unwrap().into();
            let plain = Objective::default();
            let rows = array![[0.0, 0.0, 2.0, 0.0, 0.0, 0.0]];
            let metric = Objective { directions: Some(Directions::new(rows).unwrap()), ..along.clone() };
            for (init, encoding, objective) in [
                (Init::Residual, Encoding::Greedy, &plain),
                (Init::Random, Encoding::Greedy, &plain),
                (Init::Residual, search, &plain),
                (Init::Residual, search, &along),
                (Init::Residual, search, &metric),
                (Init::Residual, Encoding::Beam { width: 3 }, &plain),
            ] {
                let sizes = Training {
                    n_codebooks: 3,
                    n_codewords: 12,
                    anneal: 3,
                    weight_power: 0.0,
                    ..Default::default()
                };
                let training = Training { selection, init, encoding, objective: objective.clone(), ..sizes };
                let trained = train(&x.view(), &training, &()).unwrap();
                assert!(trained.history.is_sorted_by(|a, b| a >= b), "{:?}", trained.history);
                let error =
                    objective.errors(&trained.codebooks, &x.view(), trained.codes.view(), &()).unwrap();
                let error = error.mean_axis(Axis(0)).unwrap().into_scalar();
                assert!((error / trained.history.last().unwrap() - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_model_for_any_number_of_threads() {
        let x = pseudo(500, 5);
        for training in [Training::default(), Training::reconstruction()] {
            let training =
                Training { n_codebooks: 2, n_codewords: 16, anneal: 2, max_iter: Some(3), ..training };
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| train(&x.view(), &training, &()).unwrap())
            };
            let (one, three) = (on(1), on(3));
            assert_eq!(one.codebooks, three.codebooks);
            assert_eq!(one.codes, three.codes);
        }
    }

    #[test]
    fn vectors_without_weight_change_nothing() {
        let some = pseudo(400, 6);
        let others = pseudo(4000, 6).mapv(|x| 1e3 * x + 77.0);
        let x = ndarray::concatenate(Axis(0), &[others.view(), some.view()]).unwrap();
        let weights: Vec<f64> = (0..4400).map(|row| if row < 4000 { 0.0 } else { 1.0 }).collect();
        for init in [Init::Residual, Init::Random] {
            let sizes = Training { n_codebooks: 3, n_codewords: 24, anneal: 3, init, ..Default::default() };
            let trained = |x: &Array2<f32>, weights: Option<Vec<f64>>| {
                let x = x.view();
                let local = Local::new(&x, weights).unwrap().weighted_by_norm(2.0, None, &()).unwrap();
                train_on(&local, &Training { max_iter: Some(2), ..sizes.clone() }, &()).unwrap()
            };
            let (all, alone) = (trained(&x, Some(weights.clone())), trained(&some, None));
            assert!((all.history[0] / alone.history[0] - 1.0).abs() < 1e-6);
            assert_eq!(all.history.len(), alone.history.len());
            assert_eq!(all.codes.slice(ndarray::s![4000.., ..]), alone.codes);
            let difference = all.codebooks.view().to_owned() - alone.codebooks.view();
            assert!(difference.iter().all(|difference| difference.abs() < 1e-3));
        }
    }

    #[test]
    fn progress_is_that_of_the_whole_and_stops_it() {
        let x = pseudo(300, 5);
        let training = Training {
            n_codebooks: 2,
            n_codewords: 8,
            anneal: 3,
            max_iter: Some(2),
            tolerance: 0.0,
            ..Default::default()
        };
        let last = std::sync::Mutex::new((0, 0));
        let told = |done: u64, total: u64| {
            let share = done as f64 / total as f64;
            let mut last = last.lock().unwrap();
            if share > last.0 as f64 / f64::max(last.1 as f64, 1.0) {
                *last = (done, total);
            }
            true
        };
        train(&x.view(), &training, &told).unwrap();
        let last = *last.lock().unwrap();
        assert!(last.0 > 0 && last.0 <= last.1, "{last:?}");
        let stop = |done: u64, total: u64| done < total / 2;
        assert!(matches!(train(&x.view(), &training, &stop), Err(Error::Cancelled)));
    }
}
