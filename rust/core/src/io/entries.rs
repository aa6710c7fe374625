//! The metadata of a file.

use std::collections::BTreeMap;

/// Names and texts.
pub(super) type Entries = BTreeMap<String, String>;
