//! Passes over vectors: the encoder takes a chunk at a time, on all threads.

use super::choose::{Given, Scratch};
use super::encoder::{CHUNK, Encoder};
use super::encoding::Encoding;
use super::interface::{Encode, Improved};
use super::target::{StretchedTarget, Target, check_rows};
use crate::error::Result;
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use ndarray::{Array1, Array2};
use rayon::prelude::*;

/// The most vectors that take the steps of local search together.
const SEARCHED: usize = 1008;
/// The most numbers that local search holds for them.
const LARGEST: usize = 1 << 22;
/// Lookups of Gram entries, M²·K per vector and round, that may pass before the monitor is checked.
const PATIENCE: usize = 1 << 32;

impl Encode for Encoder {
    fn encode_target(&self, target: &Target<'_>, monitor: &dyn Monitor) -> Result<Array2<u8>> {
        let mut codes = Array2::zeros((target.x.n(), self.codebooks.n_codebooks()));
        self.run(target, &mut codes, None, monitor)?;
        Ok(codes)
    }

    fn improve_target(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        monitor: &dyn Monitor,
    ) -> Result<Improved> {
        let n = target.x.n();
        check_rows(codes.view(), target.x)?;
        self.codebooks.check_codes(codes.view())?;
        let mut improved = Improved { before: Array1::zeros(n), after: Array1::zeros(n) };
        self.run(target, codes, Some(&mut improved), monitor)?;
        Ok(improved)
    }
}

impl Encoder {
    fn run(
        &self,
        target: &Target<'_>,
        codes: &mut Array2<u8>,
        improved: Option<&mut Improved>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        target.check(self.codebooks.dim())?;
        let stretched: StretchedTarget<'_>;
        let target = match &self.directions {
            None => *target,
            Some(directions) => {
                stretched = StretchedTarget::new(directions, target)?;
                stretched.target()
            }
        };
        let n = target.x.n();
        let (m, rows) = (self.codebooks.n_codebooks(), parallel::rows(self.together(n)));
        let counter = Counter::new(monitor, n as u64);
        let codes =
            codes.as_slice_mut().expect("codes are made contiguous").par_chunks_mut(rows * m).enumerate();
        let finish = |codes: &[u8]| counter.add((codes.len() / m) as u64);
        // `find_first` and not `try_for_each`: of several bad rows the lowest is reported, for any number of threads.
        let failed = match improved {
            None => codes
                .map_init(
                    || Scratch::new(self),
                    |scratch, (i, codes)| {
                        scratch.read(&target, i * rows, codes.len() / m)?;
                        scratch.choose(self, Given::Ignored, codes);
                        finish(codes)
                    },
                )
                .find_first(Result::is_err),
            Some(Improved { before, after }) => {
                let before = before.as_slice_mut().expect("fresh").par_chunks_mut(rows);
                let after = after.as_slice_mut().expect("fresh").par_chunks_mut(rows);
                codes
                    .zip(before.zip(after))
                    .map_init(
                        || Scratch::new(self),
                        |scratch, ((i, codes), (before, after))| {
                            scratch.read(&target, i * rows, before.len())?;
                            scratch.improve(self, codes, (before, after));
                            finish(codes)
                        },
                    )
                    .find_first(Result::is_err)
            }
        };
        failed.unwrap_or(Ok(()))
    }

    /// Vectors encoded at once by a thread, out of `n`.
    fn together(&self, n: usize) -> usize {
        let Encoding::LocalSearch { rounds, .. } = self.encoding else { return CHUNK };
        let (m, k, d) = self.codebooks.view().dim();
        // Small enough that the threads can share the work, and that slow encoders check the monitor often.
        let shared = n.div_ceil(4 * rayon::current_num_threads());
        let patient = PATIENCE / (rounds.max(1) * m * m * k).max(1);
        SEARCHED
            .min(LARGEST / (m * k + d))
            .min(shared)
            .min(patient)
            .max(2)
            .next_multiple_of(if patient > CHUNK { CHUNK } else { 2 })
    }
}
