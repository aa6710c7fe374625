//! Where the packed codes are: in memory of their own, or in a mapped file until they change.

use crate::codes::packed::{PackedCodes, PackedView};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) enum Store {
    Owned(PackedCodes),
    /// Processes that map the same file share its pages.
    Mapped {
        map: Arc<memmap2::Mmap>,
        bytes: Range<usize>,
        len: usize,
        n_columns: usize,
    },
}

impl Store {
    pub(crate) fn view(&self) -> PackedView<'_> {
        match self {
            Store::Owned(codes) => codes.view(),
            Store::Mapped { map, bytes, len, n_columns } => {
                PackedView::new(&map[bytes.clone()], *len, *n_columns).expect("checked when it was mapped")
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.view().len()
    }

    pub(crate) fn n_columns(&self) -> usize {
        self.view().n_columns()
    }

    /// The codes to be changed: mapped ones are copied first.
    pub(crate) fn to_mut(&mut self) -> Result<&mut PackedCodes> {
        if let Store::Mapped { .. } = self {
            *self = Store::Owned(PackedCodes::from_view(self.view())?);
        }
        match self {
            Store::Owned(codes) => Ok(codes),
            Store::Mapped { .. } => unreachable!("copied above"),
        }
    }
}
