//! A value that many threads read while one changes it, in processes that fork.
//!
//! A reader gets the present value, through an [`Arc`]. A change is prepared alongside it, by one thread at a time (its
//! [`Turn`]), and is applied when nobody is reading: [`Shared::commit`] keeps new readers waiting until then, and
//! changes the value in place.
//!
//! **Forks.** A child has only the thread that forked; locks held by others stay locked in it. Locks are only held
//! while a pointer is copied or a change applied, and [`before_fork`] waits until none is held. What other threads were
//! reading counts as being read for ever, so a child that changes the value copies it first. If a program forks without
//! Python's knowledge while a lock is held, the child gets an error.

use crate::errors::to_python;
use compcodes::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long a lock may stay locked in a child before it counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// Called while waiting: whether to give up.
pub(crate) type Stop<'a> = &'a dyn Fn() -> bool;

pub(crate) struct Shared<T> {
    slot: Mutex<Slot<T>>,
    /// The process that last used the slot.
    process: AtomicU32,
}

struct Slot<T> {
    value: Arc<T>,
    /// A change is being prepared.
    turn: Arc<AtomicBool>,
    /// A change is waiting to be applied: new readers wait.
    closed: Arc<AtomicBool>,
    /// Pointers to the value whose threads are not in this process.
    orphans: usize,
}

/// The slot, locked; no fork can happen meanwhile.
struct Entered<'a, T> {
    slot: MutexGuard<'a, Slot<T>>,
    _no_fork: RwLockReadGuard<'static, ()>,
}

/// The right to make the next change.
pub(crate) struct Turn(Flag);

/// A flag that is set until this is dropped.
struct Flag(Arc<AtomicBool>);

impl Flag {
    /// `None` if it is already set.
    fn set(flag: &Arc<AtomicBool>) -> Option<Self> {
        (!flag.swap(true, Ordering::Acquire)).then(|| Self(flag.clone()))
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T: Clone> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        let slot = Slot { value: Arc::new(value), turn: Arc::default(), closed: Arc::default(), orphans: 0 };
        Self { slot: Mutex::new(slot), process: AtomicU32::new(std::process::id()) }
    }

    /// The value, unless a change is under way.
    pub(crate) fn try_look(&self) -> Option<Arc<T>> {
        self.enter().and_then(|entered| entered.slot.open())
    }

    /// The value; waits for a change under way.
    pub(crate) fn look(&self, stop: Stop<'_>) -> PyResult<Arc<T>> {
        self.wait(stop, |slot| slot.open())
    }

    /// The value, waiting only a moment: does not wait for a change that itself waits for readers.
    pub(crate) fn peek(&self) -> PyResult<Arc<T>> {
        self.wait(&|| false, |slot| Some(slot.value.clone()))
    }

    /// Waits for changes under way.
    pub(crate) fn turn(&self, stop: Stop<'_>) -> PyResult<Turn> {
        self.wait(stop, |slot| Flag::set(&slot.turn).map(Turn))
    }

    /// Applies a change as soon as nobody reads the value. Once `change` is called it runs to its end, whatever `stop`
    /// says.
    pub(crate) fn commit<R>(
        &self,
        turn: &Turn,
        stop: Stop<'_>,
        change: impl FnOnce(&mut T) -> R,
    ) -> PyResult<R> {
        debug_assert!(turn.0.0.load(Ordering::Relaxed));
        let mut change = Some(change);
        let mut closed = None;
        self.wait(stop, |slot| {
            if closed.is_none() {
                closed = Flag::set(&slot.closed);
            }
            let value = slot.alone()?;
            Some(change.take().expect("called once")(value))
        })
    }

    /// Like [`commit`](Self::commit), but only if nobody is reading the value right now; otherwise gives `change` back.
    pub(crate) fn try_commit<C, R>(
        &self,
        turn: &Turn,
        change: C,
        make: impl FnOnce(&mut T, C) -> R,
    ) -> Result<R, C> {
        debug_assert!(turn.0.0.load(Ordering::Relaxed));
        let Some(mut entered) = self.enter() else { return Err(change) };
        match entered.slot.alone() {
            Some(value) => Ok(make(value, change)),
            None => Err(change),
        }
    }

    /// `None` if another thread is in it for the moment, or a fork is under way.
    fn enter(&self) -> Option<Entered<'_, T>> {
        let no_fork = match FORK.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut slot = match self.slot.try_lock() {
            Ok(guard) => guard,
            // Nothing in the core leaves an index half changed.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let process = std::process::id();
        if self.process.swap(process, Ordering::Relaxed) != process {
            slot.adopt();
        }
        Some(Entered { slot, _no_fork: no_fork })
    }

    /// Tries until `attempt` returns something.
    fn wait<R>(&self, stop: Stop<'_>, mut attempt: impl FnMut(&mut Slot<T>) -> Option<R>) -> PyResult<R> {
        let (start, mut pause) = (Instant::now(), Duration::from_micros(1));
        loop {
            match self.enter() {
                Some(mut entered) => {
                    if let Some(found) = attempt(&mut entered.slot) {
                        return Ok(found);
                    }
                }
                None if start.elapsed() > LOST
                    && self.process.load(Ordering::Relaxed) != std::process::id() =>
                {
                    return Err(PyRuntimeError::new_err(
                        "this process was forked while another thread changed the index: load or make it anew here",
                    ));
                }
                None => {}
            }
            if stop() {
                return Err(to_python(Error::Cancelled));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(1));
        }
    }
}

impl<T: Clone> Slot<T> {
    fn open(&self) -> Option<Arc<T>> {
        (!self.closed.load(Ordering::Acquire)).then(|| self.value.clone())
    }

    /// The value, if no thread of this process reads it.
    fn alone(&mut self) -> Option<&mut T> {
        if self.orphans > 0 && Arc::strong_count(&self.value) == 1 + self.orphans {
            self.value = Arc::new(T::clone(&self.value));
            self.orphans = 0;
        }
        Arc::get_mut(&mut self.value)
    }

    /// In a child: the readers and turns of other threads ended with them.
    fn adopt(&mut self) {
        self.orphans = Arc::strong_count(&self.value) - 1;
        (self.turn, self.closed) = Default::default();
    }
}

/// Read-locked by threads that are in a slot or choose a thread pool, write-locked by a thread that forks.
static FORK: RwLock<()> = RwLock::new(());

thread_local! {
    static FORKING: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Keeps Python from forking this process as long as the guard lives. `None` if a lock was lost in a fork by other
/// means: the forking thread then held it alone.
pub(crate) fn no_fork() -> Option<RwLockReadGuard<'static, ()>> {
    let start = Instant::now();
    loop {
        match FORK.try_read() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() > LOST => return None,
            // Without the interpreter lock, where there is one: the forking thread needs it to finish.
            Err(TryLockError::WouldBlock) => {
                Python::attach(|py| py.detach(|| std::thread::sleep(Duration::from_micros(20))));
            }
        }
    }
}

/// Waits until no slot is locked, and keeps it that way until [`after_fork`].
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    // Without the interpreter lock, which other threads may need before they leave their slots, or fork.
    py.detach(|| {
        let start = Instant::now();
        // A lock that is itself lost must not keep a process from forking.
        while start.elapsed() < 5 * LOST {
            let guard = match FORK.try_write() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_micros(20));
                    continue;
                }
            };
            return FORKING.set(Some(guard));
        }
    });
}

/// In parent and child: ends what [`before_fork`] began.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKING.take();
}

#[pyfunction]
pub(crate) fn after_fork_in_child(py: Python<'_>) {
    after_fork();
    crate::late::forget_late(py);
}

/// Registers these with Python.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(()); // where there is no fork
    }
    let arguments = PyDict::new(py);
    arguments.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    arguments.set_item("after_in_parent", wrap_pyfunction!(after_fork, py)?)?;
    arguments.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    os.call_method("register_at_fork", (), Some(&arguments)).map(drop)
}
