//! What a signal handler raised too late to stop a change: it is raised where it cannot be mistaken for "nothing was
//! done".
//!
//! An exception from a change tells the caller that nothing was changed, and a change that was made returns. So what was
//! raised too late, a `KeyboardInterrupt` or anything else, is kept as it is, and raised at the start of the next long
//! call of the same thread, or once the caller has its result, whichever is first. If it only came after a while, it
//! would hit the next change in a loop of brief ones, be too late for that one as well, and so never be raised.
//!
//! The caller may block once it has its result. Only a signal whose handler raises ends that, so a timer sends one to the
//! thread. It is not the signal that was received, whose handler would run twice, but one that is ignored unless
//! somebody wants it: should it arrive after all was done, nothing happens. It has a handler of ours until then.
//!
//! Python runs signal handlers in the main thread alone, so everything here happens there, except for the timer.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use std::cell::RefCell;

/// Seconds within which the caller has its result.
const SOON: f64 = 0.01;

/// What is still to be raised.
struct Late {
    error: PyErr,
    alarm: Option<Alarm>,
}

/// A timer, and the handler of the signal that it sends.
struct Alarm {
    timer: Py<PyAny>,
    signal: Py<PyAny>,
    handler: Py<PyAny>,
    /// The handler that the signal had before.
    previous: Py<PyAny>,
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Raises what the last call of this thread deferred, if that has not been raised yet.
pub(crate) fn raise_late(py: Python<'_>) -> PyResult<()> {
    LATE.take().map_or(Ok(()), |late| Err(late.end(py)))
}

/// In the child of a fork: what was deferred is raised in the parent.
pub(crate) fn forget_late(py: Python<'_>) {
    if let Some(late) = LATE.take() {
        late.end(py);
    }
}

/// After something was done, defers what was `raised` too late to stop it: raised now, it would tell the caller that
/// nothing was done.
pub(crate) fn settle(py: Python<'_>, raised: Option<PyErr>) {
    let mut late = raised;
    // After a handler that raises, others may still have to run.
    while let Err(newer) = py.check_signals() {
        late = Some(following(py, newer, late));
    }
    let Some(mut error) = late else { return };
    let earlier = LATE.take().map(|earlier| earlier.end(py));
    if let Some(earlier) = earlier {
        error = following(py, error, Some(earlier));
    }
    let (error, alarm) = match Alarm::set(py) {
        Ok(alarm) => (error, Some(alarm)),
        // Then the next call raises it.
        Err(failed) => (following(py, error, Some(failed)), None),
    };
    LATE.set(Some(Late { error, alarm }));
}

/// `error`, raised after `earlier`: Python shows both.
fn following(py: Python<'_>, error: PyErr, earlier: Option<PyErr>) -> PyErr {
    let Some(earlier) = earlier else { return error };
    // After what it was raised during itself.
    let mut last = error.clone_ref(py);
    while !last.value(py).is(earlier.value(py)) {
        match last.context(py) {
            Some(context) => last = context,
            None => {
                last.set_context(py, Some(earlier));
                break;
            }
        }
    }
    error
}

impl Late {
    /// Ends the alarm; returns what is to be raised.
    fn end(self, py: Python<'_>) -> PyErr {
        match self.alarm.map_or(Ok(()), |alarm| alarm.end(py)) {
            Ok(()) => self.error,
            Err(newer) => following(py, newer, Some(self.error)),
        }
    }
}

impl Alarm {
    fn set(py: Python<'_>) -> PyResult<Self> {
        let (signals, threading) = (py.import("signal")?, py.import("threading")?);
        let sends = signals.hasattr("pthread_kill")?;
        // Windows sends no signals to threads: there, what blocks is not woken.
        let signal = signals.getattr(if sends { "SIGURG" } else { "SIGBREAK" })?;
        let previous = signals.call_method1("getsignal", (&signal,))?;
        if previous.is_none() {
            return Err(PyRuntimeError::new_err(format!("{signal} has a handler that is not Python's")));
        }
        let handler = PyCFunction::new_closure(py, None, None, raise_or(previous.clone().unbind()))?;
        let (function, arguments) = if sends {
            let here = threading.call_method0("get_ident")?;
            (signals.getattr("pthread_kill")?, (here, &signal).into_pyobject(py)?)
        } else {
            (py.import("_thread")?.getattr("interrupt_main")?, (&signal,).into_pyobject(py)?)
        };
        let timer = threading.call_method1("Timer", (SOON, function, arguments))?;
        timer.setattr("daemon", true)?;
        signals.call_method1("signal", (&signal, &handler))?;
        let (timer, signal, previous) = (timer.unbind(), signal.unbind(), previous.unbind());
        let alarm = Self { timer, signal, handler: handler.into_any().unbind(), previous };
        match alarm.timer.call_method0(py, "start") {
            Ok(_) => Ok(alarm),
            Err(failed) => {
                alarm.end(py)?;
                Err(failed)
            }
        }
    }

    fn end(self, py: Python<'_>) -> PyResult<()> {
        self.timer.call_method0(py, "cancel")?;
        let signals = py.import("signal")?;
        // Unless the program has set one of its own meanwhile.
        if signals.call_method1("getsignal", (&self.signal,))?.is(&self.handler) {
            signals.call_method1("signal", (self.signal, self.previous))?;
        }
        Ok(())
    }
}

/// A handler that raises what is late, and otherwise is like `previous`.
fn raise_or(
    previous: Py<PyAny>,
) -> impl Fn(&Bound<'_, PyTuple>, Option<&Bound<'_, PyDict>>) -> PyResult<()> + Send + 'static {
    move |arguments, _| {
        let py = arguments.py();
        raise_late(py)?;
        if previous.bind(py).is_callable() { previous.call1(py, arguments.clone()).map(drop) } else { Ok(()) }
    }
}
