//! Long-running work: without the interpreter lock, on a pool of the requested size, handling signals and progress.
//!
//! `Python::check_signals` does nothing off the main thread, and a pool's `install` runs its closure on a pool thread.
//! So the calling thread waits, and ten times per second it checks for Ctrl-C and calls back; a scoped worker computes,
//! and checks at each chunk whether it should stop.

use crate::errors::{to_python, wrong_value};
use crate::late::{raise_late, settle};
use crate::shared::Stop;
use compcodes::monitor::Monitor;
use compcodes::{Error, Result};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::ThreadPool;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How often the calling thread checks for signals and reports progress.
const TICK: Duration = Duration::from_millis(100);

/// Runs `work` on `n_jobs` threads (`None`: all cores; negative: counted from all, −1 is all). Every tenth of a second
/// `progress(done, total)` is called; if it raises, or on Ctrl-C, the work is told to stop and the exception is
/// returned.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    n_jobs: Option<i64>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Monitor) -> Result<T> + Send,
) -> PyResult<T> {
    run_holding(py, n_jobs, progress, |_| Ok(()), |(), monitor| work(monitor))
}

/// Like [`run`], while something is held: a look at an index.
///
/// It is acquired outside the pool. A pool thread that waits for its tasks takes up other work, for example another
/// search. If that search waited for an index while the first one, deeper in the same thread, holds a look at it, and a
/// change stood between them, all three would wait forever.
pub(crate) fn run_holding<T: Send, G: Send>(
    py: Python<'_>,
    n_jobs: Option<i64>,
    progress: Option<&Bound<'_, PyAny>>,
    acquire: impl FnOnce(Stop<'_>) -> PyResult<G> + Send,
    work: impl FnOnce(G, &dyn Monitor) -> Result<T> + Send,
) -> PyResult<T> {
    raise_late(py)?;
    let pool = pool(n_jobs)?;
    let progress = progress.map(|callback| callback.clone().unbind());
    let state = State::default();
    let (result, raised) = watched(py, progress.as_ref(), &state, || {
        let held = acquire(&|| state.stopped())?;
        pool.install(|| work(held, &state)).map_err(to_python)
    })?;
    if let Some(raised) = raised {
        return Err(raised);
    }
    let value = result?;
    state.tell(py, progress.as_ref())?;
    Ok(value)
}

/// Runs work that changes something, and listens for Ctrl-C until it is done. If it was done, it returns its result
/// whatever was raised meanwhile: an exception tells the caller that nothing was changed.
pub(crate) fn run_whole<T: Send>(
    py: Python<'_>,
    n_jobs: Option<i64>,
    work: impl FnOnce(&ThreadPool, &dyn Monitor, Stop<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    raise_late(py)?;
    let pool = pool(n_jobs)?;
    let state = State::default();
    let (result, raised) = watched(py, None, &state, || work(&pool, &state, &|| state.stopped()))?;
    match result {
        Ok(done) => {
            settle(py, raised);
            Ok(done)
        }
        Err(error) => Err(raised.unwrap_or(error)),
    }
}

/// Runs `work` on its own thread while this one checks for signals and calls back. Returns the result of `work`, and
/// what was raised meanwhile.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    state: &State,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<(PyResult<T>, Option<PyErr>)> {
    let (result, raised) = py.detach(|| {
        std::thread::scope(|scope| {
            let (finished, wait) = mpsc::channel::<()>();
            let worker = std::thread::Builder::new().spawn_scoped(scope, || {
                // Dropped on a panic too, so this is always noticed.
                let _finished = finished;
                work()
            });
            let worker = worker.map_err(no_thread)?;
            let mut raised = None;
            while let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(TICK) {
                if raised.is_none() {
                    raised = Python::attach(|py| state.tell(py, progress)).err();
                    state.stop.store(raised.is_some(), Ordering::Relaxed);
                }
            }
            PyResult::Ok((worker.join(), raised))
        })
    })?;
    Ok((result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), raised))
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl State {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn tell(&self, py: Python<'_>, progress: Option<&Py<PyAny>>) -> PyResult<()> {
        py.check_signals()?;
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if let Some(callback) = progress
            && total > 0
        {
            callback.call1(py, (done, total))?;
        }
        Ok(())
    }
}

impl Monitor for State {
    fn report(&self, done: u64, total: u64) -> Result<()> {
        self.total.store(total, Ordering::Relaxed);
        self.done.fetch_max(done, Ordering::Relaxed);
        if self.stopped() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// The number of threads that `n_jobs` asks for.
fn threads(n_jobs: Option<i64>) -> PyResult<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match n_jobs {
        None => Ok(cores),
        Some(0) => Err(wrong_value("n_jobs", "is 0: want a number of threads, or None for all cores")),
        // Many more threads than cores would only waste memory.
        Some(jobs @ 1..) => Ok(usize::try_from(jobs).unwrap_or(cores).min(4 * cores)),
        Some(jobs) => Ok(usize::try_from(cores as i64 + 1 + jobs).unwrap_or(1).max(1)),
    }
}

fn no_thread(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("cannot start threads: {error}"))
}

thread_local! {
    /// A pool that consists of this thread alone: its work runs here and now.
    static HERE: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

/// Runs `work` on the calling thread. Waking a pool thread takes 50 µs, three times as long as a search of a few
/// thousand codes.
pub(crate) fn here<T>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T>
where
    T: Send,
{
    let run = || {
        HERE.with_borrow_mut(|pool| {
            if pool.is_none() {
                *pool = Some(rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build()?);
            }
            Ok(pool.as_ref().expect("just set").install(work))
        })
    };
    py.detach(run).map_err(|e: rayon::ThreadPoolBuildError| no_thread(e))
}

/// The pools of this process, by their number of threads.
static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

struct Pools {
    process: u32,
    by_threads: HashMap<usize, Arc<ThreadPool>>,
}

/// The pool with `n_jobs` threads.
pub(crate) fn pool(n_jobs: Option<i64>) -> PyResult<Arc<ThreadPool>> {
    pool_of(threads(n_jobs)?)
}

/// A pool of one thread on which indexes are changed, and nothing else: other threads wait while that is done, so it
/// must not wait for them.
pub(crate) fn changing() -> PyResult<Arc<ThreadPool>> {
    pool_of(0)
}

/// The pool with this many threads; 0 means one thread, in a pool that is separate from that for 1.
fn pool_of(threads: usize) -> PyResult<Arc<ThreadPool>> {
    // No child of a fork finds the pools locked, with or without an interpreter lock.
    let _no_fork = crate::shared::no_fork();
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if pools.as_ref().is_none_or(|pools| pools.process != process) {
        // After a fork the parent's threads do not exist here: dropping its pools would wait for them forever.
        std::mem::forget(pools.replace(Pools { process, by_threads: HashMap::new() }));
    }
    let by_threads = &mut pools.as_mut().expect("just set").by_threads;
    if let Some(pool) = by_threads.get(&threads) {
        return Ok(pool.clone());
    }
    let build = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.max(1))
        .thread_name(|i| format!("compcodes-{i}"))
        .build();
    let pool =
        Arc::new(build.map_err(|e| PyRuntimeError::new_err(format!("cannot start {threads} threads: {e}")))?);
    by_threads.insert(threads, pool.clone());
    Ok(pool)
}
