//! Memory for packed codes: whole cache lines, on large pages.
//!
//! A line that straddles two cache lines is loaded twice, and with pages of 4 KB the processor stops looking ahead at
//! every 64th line. Both cost time where a single query passes over all the codes.

use crate::codes::layout::{BLOCK, Line};
use crate::error::{Result, invalid};
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// Allocations from this size on ask for large pages: the size of one such page, in bytes.
#[cfg(target_os = "linux")]
const LARGE: usize = 2 << 20;

/// A growable array of lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Everything beyond `len` lines is 0. `None`: no lines yet.
    map: Option<MmapMut>,
    len: usize,
}

impl Lines {
    /// Copies `lines`.
    pub(crate) fn copy(lines: &[Line]) -> Result<Self> {
        let mut copy = Self::default();
        copy.grow(lines.len())?;
        copy.copy_from_slice(lines);
        Ok(copy)
    }

    /// Appends lines of zeros until there are `len`.
    ///
    /// # Errors
    /// There is no memory for them; nothing is added in that case.
    pub(crate) fn grow(&mut self, len: usize) -> Result<()> {
        let capacity = self.map.as_ref().map_or(0, |map| map.len() / BLOCK);
        if len > capacity {
            let mut map = reserve(len.max(2 * capacity) * BLOCK)
                .map_err(|error| invalid!("no memory for {len} lines of codes: {error}"))?;
            map[..self.len * BLOCK].copy_from_slice(self.as_flattened());
            self.map = Some(map);
        }
        self.len = len;
        Ok(())
    }
}

/// Zeros, aligned to pages.
fn reserve(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        // A system without large pages returns an error; small pages work too.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map)
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        self.map.as_ref().map_or(&[], |map| &map.as_chunks().0[..self.len])
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        self.map.as_mut().map_or(&mut [], |map| &mut map.as_chunks_mut().0[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_lines_are_zero_and_old_ones_stay() {
        let mut lines = Lines::default();
        assert!(lines.is_empty());
        for len in [0, 1, 3, 4, 100, 70_000] {
            let old = lines.len();
            lines.grow(len).unwrap();
            assert!(lines[old..].iter().all(|line| *line == [0; BLOCK]));
            assert!(lines[..old].iter().all(|line| *line == [7; BLOCK]));
            lines.fill([7; BLOCK]);
            assert_eq!((lines.len(), lines.as_ptr().addr() % BLOCK * usize::from(len > 0)), (len, 0));
        }
        assert_eq!(*Lines::copy(&lines).unwrap(), *lines);
    }

    #[test]
    fn more_than_there_is_memory_is_an_error() {
        assert!(Lines::default().grow(1 << 56).is_err());
    }
}
