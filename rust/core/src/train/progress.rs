//! Progress of a part of the training, reported as progress of the whole.

use crate::error::Result;
use crate::monitor::Monitor;

/// Progress of one pass, reported as progress of the whole.
pub(super) struct PassProgress<'a> {
    pub(super) monitor: &'a dyn Monitor,
    pub(super) pass: u64,
    pub(super) passes: u64,
}

impl Monitor for PassProgress<'_> {
    fn report(&self, done: u64, total: u64) -> Result<()> {
        self.monitor.report(self.pass * total + done, self.passes * total)
    }
}

/// The total that a [`Share`] reports, since those of passes differ.
const UNITS: u64 = 1 << 20;

/// Progress of a part of the work, reported as progress of the whole.
pub(super) struct Share<'a> {
    pub(super) monitor: &'a dyn Monitor,
    /// What was done before, of `all`.
    pub(super) before: u64,
    pub(super) own: u64,
    pub(super) all: u64,
}

impl Monitor for Share<'_> {
    fn report(&self, done: u64, total: u64) -> Result<()> {
        let share = self.before as f64 + self.own as f64 * (done as f64 / total.max(1) as f64);
        self.monitor.report((share / self.all as f64 * UNITS as f64) as u64, UNITS)
    }
}
