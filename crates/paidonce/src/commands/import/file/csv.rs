//! Comma separated values (RFC 4180): quotes, doubled quotes, commas and line breaks inside quotes, CRLF or LF.

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Line of the file where it begins, from 1.
    pub(super) line: usize,
    /// Its values.
    pub(super) cells: Vec<String>,
    /// As it stands in the file, without the line end.
    pub(super) text: String,
}

/// All records; empty lines are skipped. An error has the line where its record begins and what is wrong; reading stops at
/// a quote that never ends, since nothing behind it can be trusted.
pub(super) fn records(text: &str) -> Vec<Result<Record, (usize, String)>> {
    let mut records = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (length, found) = record(rest, line);
        let (taken, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        if !taken.trim().is_empty() {
            records.push(found);
        }
        line += taken.matches('\n').count();
        rest = after;
    }
    records
}

/// Where in a record the reader stands.
enum At {
    CellStart,
    Plain,
    Quoted,
    /// Behind a quote inside quotes: the end of the cell, or half of a doubled quote.
    QuoteSeen,
}

/// The first record of `text` and its length in bytes, line end included.
fn record(text: &str, line: usize) -> (usize, Result<Record, (usize, String)>) {
    let (mut cells, mut cell, mut at, mut broken) = (Vec::new(), String::new(), At::CellStart, false);
    let mut length = text.len();
    for (index, c) in text.char_indices() {
        at = match (at, c) {
            (At::CellStart | At::Plain | At::QuoteSeen, '\n') => {
                length = index + 1;
                at = At::CellStart;
                break;
            }
            (At::CellStart | At::Plain | At::QuoteSeen, ',') => {
                cells.push(std::mem::take(&mut cell));
                At::CellStart
            }
            (At::CellStart, '"') => At::Quoted,
            (At::Quoted, '"') => At::QuoteSeen,
            (At::QuoteSeen, '"') => {
                cell.push('"');
                At::Quoted
            }
            (At::QuoteSeen, '\r') => At::QuoteSeen,
            (At::QuoteSeen, _) => {
                broken = true;
                At::Plain
            }
            (At::Quoted, c) => {
                cell.push(c);
                At::Quoted
            }
            (At::CellStart | At::Plain, c) => {
                cell.push(c);
                At::Plain
            }
        };
    }
    let taken = text.get(..length).unwrap_or(text).trim_end_matches(['\r', '\n']).to_owned();
    if matches!(at, At::Quoted) {
        return (text.len(), Err((line, "a quote is opened and never closed".to_owned())));
    }
    if broken {
        return (
            length,
            Err((line, "text stands behind a closing quote: double the quotes inside a value".to_owned())),
        );
    }
    cells.push(cell.trim_end_matches('\r').to_owned());
    (length, Ok(Record { line, cells, text: taken }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        records(text).into_iter().map(|record| record.unwrap().cells).collect()
    }

    #[test]
    fn quotes_commas_and_line_breaks_inside_a_value_are_kept() {
        let found = cells("a,b\r\n\"x, \"\"y\"\"\",\"two\nlines\"\r\n\nlast,\n");
        assert_eq!(found, [vec!["a", "b"], vec!["x, \"y\"", "two\nlines"], vec!["last", ""]]);
    }

    #[test]
    fn a_record_knows_the_line_where_it_begins() {
        let lines: Vec<_> = records("h\n\n\"a\nb\"\nc\n").into_iter().map(|record| record.unwrap().line).collect();
        assert_eq!(lines, [1, 3, 5]);
    }

    #[test]
    fn broken_quotes_are_an_error_with_their_line() {
        let found = records("h\n\"a\"b\nc\n\"never\nends\n");
        assert_eq!(found[1].as_ref().unwrap_err().0, 2);
        assert_eq!(found[2].as_ref().unwrap().cells, ["c"]);
        assert_eq!(found[3].as_ref().unwrap_err(), &(4, "a quote is opened and never closed".to_owned()));
    }
}
