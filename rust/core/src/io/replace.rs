//! Writing a file completely or not at all.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Replaces the content of the file at `path` with what `write` writes: all of it or, after an error, nothing.
///
/// The content goes to a new file in the same folder, `.compcodes-….part` with random letters, that only its creator
/// ever removes. So writers do not collide, not even those of two containers that share the folder and number their
/// processes alike; a reader sees the old file or the new one; and the remains of a killed process are recognisable by
/// their name, are in nobody's way, and may be deleted once no process is writing. The content is on disk before it
/// gets its name, and so is the name when this returns, if the file system can guarantee it.
///
/// A link stays a link, anything that is not a regular file is not replaced by one, and the permissions of a file are
/// preserved.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let failed = |source: io::Error| Error::Io { path: path.to_owned(), source };
    let target = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(target).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(failed(io::Error::other("exists and is not a file")));
    }
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Opened here, not by the library, whose files can be read by their owner alone.
    let mut file = tempfile::Builder::new()
        .prefix(".compcodes-")
        .suffix(".part")
        .rand_bytes(12)
        .make_in(folder, |name| OpenOptions::new().write(true).create_new(true).open(name))
        .map_err(failed)?;
    if let Some(old) = old {
        file.as_file().set_permissions(old.permissions()).map_err(failed)?;
    }
    write(file.as_file_mut())?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(target).map_err(|error| failed(error.error))?;
    // Some file systems cannot sync a folder; the file is complete all the same.
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn save(path: &Path, text: &[u8]) -> Result<()> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        replace(path, |file| file.write_all(text).map_err(failed))
    }

    #[test]
    fn what_others_left_is_in_nobodys_way_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.cc");
        // The naming scheme of the first release: process and count.
        for count in 0..100 {
            let name = format!(".compcodes-{}-{count}.part", std::process::id());
            fs::write(folder.path().join(name), b"of another process").unwrap();
        }
        for text in [&b"one"[..], b"two"] {
            save(&path, text).unwrap();
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 101);
    }

    #[test]
    fn after_an_error_the_old_file_is_there_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.cc");
        save(&path, b"old").unwrap();
        let stopped = replace(&path, |file| {
            file.write_all(b"half").unwrap();
            Err(Error::Cancelled)
        });
        assert!(matches!(stopped, Err(Error::Cancelled)));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nowhere").join("index.cc");
        let Err(Error::Io { path: named, source }) = save(&path, b"") else { panic!("saved nowhere") };
        assert_eq!((named, source.kind()), (path, io::ErrorKind::NotFound));
        assert!(source.raw_os_error().is_some());
    }
}
