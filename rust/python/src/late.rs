//! Ctrl-C that came too late to stop a change: it is raised where it cannot be mistaken for "nothing was done".
//!
//! It is raised at the start of the next long call of the same thread, or once the caller has its result, whichever is
//! first. If it only came after a while, it would hit the next change in a loop of brief ones, be too late for that one
//! as well, and so never be raised.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Seconds within which the caller has its result.
const SOON: f64 = 0.01;

/// An interrupt that is still to be raised.
struct Late {
    error: PyErr,
    /// Whoever clears this, the next call or the timer, raises it; the other one does not.
    due: Arc<AtomicBool>,
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Raises what the last call of this thread deferred, if nobody has yet.
pub(crate) fn raise_late() -> PyResult<()> {
    match LATE.take() {
        Some(late) if late.due.swap(false, Ordering::Relaxed) => Err(late.error),
        _ => Ok(()),
    }
}

/// After something was done, defers what was `raised` too late to stop it: raised now, it would tell the caller that
/// nothing was done.
pub(crate) fn settle(py: Python<'_>, raised: Option<PyErr>) {
    let Some(late) = raised.or_else(|| py.check_signals().err()) else { return };
    if !late.is_instance_of::<PyKeyboardInterrupt>(py) {
        return late.write_unraisable(py, None);
    }
    let due = Arc::new(AtomicBool::new(true));
    match interrupt_soon(py, due.clone()) {
        Ok(()) => LATE.set(Some(Late { error: late, due })),
        Err(_) => late.write_unraisable(py, None),
    }
}

/// Sends Ctrl-C again once the caller has its result, unless it is no longer `due`.
fn interrupt_soon(py: Python<'_>, due: Arc<AtomicBool>) -> PyResult<()> {
    let interrupt = py.import("_thread")?.getattr("interrupt_main")?.unbind();
    let unless_raised = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        if due.swap(false, Ordering::Relaxed) { interrupt.call0(args.py()).map(drop) } else { Ok(()) }
    };
    let unless_raised = PyCFunction::new_closure(py, None, None, unless_raised)?;
    let timer = py.import("threading")?.call_method1("Timer", (SOON, unless_raised))?;
    timer.setattr("daemon", true)?;
    timer.call_method0("start").map(drop)
}
