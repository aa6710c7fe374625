//! What local search knows about one vector besides its code: the unit of its scores, and the loss along the vector.

/// What is known about one vector besides its code.
#[derive(Clone, Copy, Default)]
pub(super) struct State {
    /// Steps per unit of loss.
    pub(super) steps: f32,
    /// How many times Gram rows are halved, for a vector with scores beyond `OWN` of [`rounded`](super::rounded).
    pub(super) shift: u32,
    /// The largest projection, relative to the middle of its codebook.
    pub(super) reach: f32,
    /// The sum of the middles, minus what all projections should sum to.
    pub(super) offset: f32,
    /// e with all codebooks included, for the code that is kept and the one on trial.
    pub(super) along: [f32; 2],
    /// What the changes of the code on trial add to the loss, in steps.
    pub(super) difference: f32,
    /// Changes so far.
    pub(super) changes: u32,
}

impl State {
    /// The value of one step of projection levels.
    #[inline(always)]
    fn unit(&self) -> f32 {
        self.reach / f32::from(i16::MAX)
    }

    /// Starts with a code whose projections sum to `sum`, in levels.
    #[inline(always)]
    pub(super) fn begin(&mut self, sum: i32) {
        self.along = [self.offset + sum as f32 * self.unit(); 2];
    }

    /// The weight of projections in the turn of a codebook whose projection is `own`: 2¹⁶ times the weight of a level
    /// in steps, after scores were halved a number of times; that number; and the steps per unit of projection.
    #[inline(always)]
    pub(super) fn weigh(&self, beta: f32, own: i16) -> (i16, u32, f32) {
        let e = self.along[1] - f32::from(own) * self.unit();
        let slope = 2.0 * beta * e * self.steps;
        let (mut factor, mut halvings) = (2.0 * slope * self.reach, 0);
        while factor.abs() > f32::from(i16::MAX) && halvings < i16::BITS - 1 {
            factor *= 0.5;
            halvings += 1;
        }
        (factor as i16, halvings, slope)
    }

    /// Corrects the difference in steps, computed from halved and rounded scores, for a change of projections; also
    /// returns what the change adds to the sum of projections.
    #[inline(always)]
    pub(super) fn refine(
        &self,
        mut difference: f32,
        (from, to): (i16, i16),
        (factor, halvings, slope): (i16, u32, f32),
    ) -> (f32, f32) {
        let (from, to, factor) = (i32::from(from), i32::from(to), i32::from(factor));
        let step = (to - from) as f32 * self.unit();
        // The products were rounded to integer steps, but which code is better may depend on a fraction of a step.
        difference -= (((factor * to) >> 16) - ((factor * from) >> 16)) as f32;
        difference *= (1u32 << halvings) as f32;
        (difference + slope * step, step)
    }
}
