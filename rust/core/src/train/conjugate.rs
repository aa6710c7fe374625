//! The update for the inner-product loss: codebooks that make Σ w(‖r‖² + β⟨r, u⟩²) smaller, u = x/‖x‖, β = η − 1.
//!
//! Its normal operator ties all dimensions together, M·K·d unknowns at once, so it is never assembled. It is applied:
//! to P it gives A P, with A = B W Bᵀ of the plain loss, plus β Σ w b uᵀ⟨u, p̄⟩, which decodes P for every vector and
//! scatters the products back. A few steps of conjugate gradients from the codebooks at hand go as far as the next
//! encoding can use.

use crate::codebooks::Codebooks;
use crate::encode::Loss;
use crate::error::Result;
use crate::monitor::Monitor;
use crate::train::equations::{NormalEquations, Prior, Problem};
use ndarray::{Array2, Zip};

/// Steps of conjugate gradients.
const STEPS: usize = 8;

/// Codebooks near `previous` with a smaller loss for `codes`; never a larger one but by rounding. A proximal ridge of
/// `ridge` times the mean use of a codeword keeps those that nothing determines where they are; `prior` says what else
/// is known of them.
///
/// # Errors
/// Those of [`NormalEquations::assemble`], or a prior of another shape.
pub fn descend(
    problem: &Problem<'_>,
    previous: &Codebooks,
    loss: Loss,
    ridge: f64,
    prior: &Prior<'_>,
    monitor: &dyn Monitor,
) -> Result<Codebooks> {
    let mut equations = problem.normal_equations(monitor)?;
    // uuᵀx = x: the side of the inner-product loss is that of the plain one, η times.
    equations.b *= loss.eta();
    let start = problem.unknowns(previous);
    let counts = equations.a.diag().to_owned();
    prior.add_to(&mut equations, start.view(), problem.n_codewords)?;
    let NormalEquations { a, b } = equations;
    let mean = a.diag().mean().unwrap_or(0.0);
    let lambda = ridge * if mean > 0.0 { mean } else { 1.0 };
    let beta = loss.extra();
    // The dense product takes most of the time; in f32 it takes half, and its error is far below that of stopping early.
    let a32 = a.mapv(|entry| entry as f32);
    let apply = |p: &Array2<f64>| -> Result<Array2<f64>> {
        let mut out = a32.dot(&p.mapv(|entry| entry as f32)).mapv(f64::from);
        out.scaled_add(beta, &problem.scatter_along(p, monitor)?);
        Ok(out)
    };
    // Jacobi: the term along u adds about 1/d of β to a diagonal entry.
    let diagonal = &a.diag() + &(counts * (beta / start.ncols() as f64)) + lambda;
    let diagonal = diagonal.insert_axis(ndarray::Axis(1));
    let mut residual = b - apply(&start)?;
    let mut change = Array2::zeros(start.raw_dim());
    let mut direction = &residual / &diagonal;
    let mut product = inner(&residual, &direction);
    for _ in 0..STEPS {
        if product <= 0.0 {
            break;
        }
        let mut image = apply(&direction)?;
        image.scaled_add(lambda, &direction);
        let step = product / inner(&direction, &image);
        change.scaled_add(step, &direction);
        residual.scaled_add(-step, &image);
        let preconditioned = &residual / &diagonal;
        let next = inner(&residual, &preconditioned);
        direction = preconditioned + (next / product) * direction;
        product = next;
    }
    problem.codebooks(start + change)
}

fn inner(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    let mut sum = 0.0;
    Zip::from(a).and(b).for_each(|a, b| sum += a * b);
    sum
}
