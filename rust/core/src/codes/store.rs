//! Where the packed codes are: in memory owned by the index, or in a mapped file until they change.

use crate::codes::packed::{Layout, PackedCodes, PackedView};
use crate::error::{Result, damaged, invalid};
use memmap2::Mmap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) enum Store {
    Owned(PackedCodes),
    /// Processes that map the same file share its pages.
    Mapped(Mapped),
}

/// Codes in a mapped file, exactly as the file has them. Damage is only detected when all of them are read.
#[derive(Clone)]
pub(crate) struct Mapped {
    map: Arc<Mmap>,
    bytes: Range<usize>,
    len: usize,
    layout: Layout,
    /// The expected checksum.
    crc: u32,
}

impl Mapped {
    /// Maps these bytes of the file as codes of `shape`: the number of vectors and their layout.
    ///
    /// # Errors
    /// The file ends before them, or the bytes do not fit the shape.
    pub(crate) fn new(map: Arc<Mmap>, bytes: Range<usize>, shape: (usize, Layout), crc: u32) -> Result<Self> {
        let (len, layout) = shape;
        let codes = map.get(bytes.clone()).ok_or_else(|| invalid!("the file ends before its codes"))?;
        PackedView::with(codes, len, layout)?;
        Ok(Self { map, bytes, len, layout, crc })
    }

    fn view(&self) -> PackedView<'_> {
        PackedView::with(&self.map[self.bytes.clone()], self.len, self.layout).expect("checked by new")
    }

    pub(crate) fn crc(&self) -> u32 {
        self.crc
    }
}

impl Store {
    pub(crate) fn view(&self) -> PackedView<'_> {
        match self {
            Store::Owned(codes) => codes.view(),
            Store::Mapped(mapped) => mapped.view(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.view().len()
    }

    pub(crate) fn n_columns(&self) -> usize {
        self.view().n_columns()
    }

    /// A copy of mapped codes in `layout`, which can be changed. The mapped codes must have their checksum and satisfy
    /// `check`. `None` for codes that are not mapped.
    pub(crate) fn unmapped(
        &self,
        layout: Layout,
        check: impl FnOnce(PackedView<'_>) -> Result<()>,
    ) -> Result<Option<PackedCodes>> {
        let Store::Mapped(mapped) = self else { return Ok(None) };
        let copy = PackedCodes::from_view(mapped.view())?;
        if crc32fast::hash(copy.view().as_bytes()) != mapped.crc {
            return Err(damaged("codes"));
        }
        check(copy.view())?;
        // Older files use one byte per code.
        Ok(Some(if copy.layout() == layout { copy } else { PackedCodes::relaid(copy.view(), layout)? }))
    }

    /// Mutable access to the codes: mapped codes are first replaced with an [`unmapped`](Self::unmapped) copy.
    pub(crate) fn to_mut(&mut self) -> Result<&mut PackedCodes> {
        match self {
            Store::Owned(codes) => Ok(codes),
            Store::Mapped(_) => Err(invalid!("mapped codes cannot be changed")),
        }
    }
}
