//! How long-running work reports its progress and learns that it should stop.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Receives progress from worker threads and may cancel the work.
pub trait Monitor: Sync {
    /// `done` of `total` rows are finished. An `Err` stops the work and is returned to the caller unchanged.
    ///
    /// Called from worker threads, once per chunk: it must be cheap.
    ///
    /// # Errors
    /// [`Error::Cancelled`] to stop.
    fn report(&self, done: u64, total: u64) -> Result<()>;
}

/// Never cancels and shows nothing.
impl Monitor for () {
    fn report(&self, _done: u64, _total: u64) -> Result<()> {
        Ok(())
    }
}

/// Any closure `Fn(done, total) -> keep_going` is a monitor.
impl<F: Fn(u64, u64) -> bool + Sync> Monitor for F {
    fn report(&self, done: u64, total: u64) -> Result<()> {
        if self(done, total) { Ok(()) } else { Err(Error::Cancelled) }
    }
}

/// Sums up what parallel chunks have finished.
pub(crate) struct Counter<'a> {
    monitor: &'a dyn Monitor,
    done: AtomicU64,
    total: u64,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(monitor: &'a dyn Monitor, total: u64) -> Self {
        Self { monitor, done: AtomicU64::new(0), total }
    }

    /// Reports that `rows` more are done.
    pub(crate) fn add(&self, rows: u64) -> Result<()> {
        let done = self.done.fetch_add(rows, Ordering::Relaxed) + rows;
        self.monitor.report(done, self.total)
    }
}
