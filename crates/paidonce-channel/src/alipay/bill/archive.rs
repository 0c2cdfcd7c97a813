//! The zip around the files. Read entry by entry, never unpacked as a whole.

use std::io::{Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::bill::BillError;
use crate::bill::unpack::{Limited, starts_with};

/// A real one has two; a bill of a big day may have several detail files.
const ENTRIES_MAX: usize = 1_000;

const ZIP: &[u8] = b"PK\x03\x04";

/// Each file of the zip through `read`; a source that is no zip is taken for one such file.
pub(super) fn each_file(
    mut source: impl Read + Seek,
    mut read: impl FnMut(&mut dyn Read) -> Result<(), BillError>,
) -> Result<(), BillError> {
    if !starts_with(&mut source, ZIP)? {
        return read(&mut Limited::new(source));
    }
    let mut archive = ZipArchive::new(source).map_err(unusable)?;
    if archive.len() > ENTRIES_MAX {
        return Err(BillError::Archive { problem: format!("has {} files", archive.len()) });
    }
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(unusable)?;
        if entry.is_file() {
            read(&mut Limited::new(entry))?;
        }
    }
    Ok(())
}

fn unusable(error: ZipError) -> BillError {
    if let ZipError::Io(error) = error {
        return error.into();
    }
    BillError::Archive { problem: format!("can't be read ({error})") }
}
