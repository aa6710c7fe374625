//! Memory: large allocations come from the system and go back to it when they are freed.
//!
//! The C library of most Linux systems does so only until a large allocation is freed for the first time. From then on
//! it keeps what is freed, up to 64 MB in the heap of each thread, and what each step of training needs would add up.

#![allow(unsafe_code)] // to be an allocator

use std::alloc::{GlobalAlloc, Layout, System};

/// Allocations from this size on, in bytes, come from the system.
const LARGE: usize = 8 << 20;

/// The allocator of the compiled part.
pub(crate) struct Heap;

/// Whether allocations with this layout come from the system.
fn is_large(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() >= LARGE && layout.align() <= 4096
}

// SAFETY: every allocation goes back to where it came from, since that depends on its layout alone. The system's
// allocations are whole pages, hence aligned, and zeroed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: promised by the caller; and see `pages`.
        unsafe { if is_large(layout) { pages::map(layout.size()) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { if is_large(layout) { pages::map(layout.size()) } else { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above; an allocation with a large layout came from `pages`.
        unsafe { if is_large(layout) { pages::unmap(at, layout.size()) } else { System.dealloc(at, layout) } }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size fits the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(new)) {
            // SAFETY: as above.
            (false, false) => unsafe { System.realloc(at, layout, size) },
            // SAFETY: as above.
            (true, true) => unsafe { pages::remap(at, layout.size(), size) },
            _ => {
                // SAFETY: both allocations hold what is copied, and they do not overlap.
                unsafe {
                    let to = self.alloc(new);
                    if !to.is_null() {
                        to.copy_from_nonoverlapping(at, layout.size().min(size));
                        self.dealloc(at, layout);
                    }
                    to
                }
            }
        }
    }
}

/// Whole pages of the system.
#[cfg(target_os = "linux")]
mod pages {
    use std::ptr::null_mut;

    /// Zeroed pages for `size` bytes, or null.
    pub(super) unsafe fn map(size: usize) -> *mut u8 {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping does not touch existing ones.
        let at = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
        if at == libc::MAP_FAILED { null_mut() } else { at.cast() }
    }

    /// Returns what `map` or `remap` allocated.
    pub(super) unsafe fn unmap(at: *mut u8, size: usize) {
        // SAFETY: the caller no longer uses it.
        unsafe { libc::munmap(at.cast(), size) };
    }

    /// Resizes pages, perhaps by moving them; or returns null and leaves them unchanged.
    pub(super) unsafe fn remap(at: *mut u8, size: usize, new: usize) -> *mut u8 {
        // SAFETY: from now on the caller uses only the new address.
        let at = unsafe { libc::mremap(at.cast(), size, new, libc::MREMAP_MAYMOVE) };
        if at == libc::MAP_FAILED { null_mut() } else { at.cast() }
    }
}

/// On other systems nothing is large.
#[cfg(not(target_os = "linux"))]
mod pages {
    pub(super) unsafe fn map(_: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub(super) unsafe fn unmap(_: *mut u8, _: usize) {}

    pub(super) unsafe fn remap(_: *mut u8, _: usize, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }
}
