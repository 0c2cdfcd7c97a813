//! What proves the ledger to a person who must show that the books are right.
//!
//! Promises: reads only, beside a running server. Fail-stop: what could not be read, or is less than the heads say, is an error
//! and never a good verdict; a report says what it covered.
//!
//! | module | what |
//! |---|---|
//! | [`explain`] | the timeline of one order |
//! | [`walk`] | a shard of the log, page by page, with every order folded |
//! | [`replay`] | the log folded again and compared with the live tables ([`compare`]), with sums ([`totals`]) |
//! | [`verify`] | the hash chain, and the evidence of all money ([`evidence`]) |
//! | [`export`] | the books: every movement of money as a double entry ([`postings`]) |
//! | [`seal`] | signed statements of where the log ends, to be kept outside ([`merkle`]) |
//! | [`as_of`] | up to where an audit looks |
//! | [`report`] | what audits say |

pub mod as_of;
mod compare;
pub mod evidence;
pub mod explain;
pub mod export;
pub mod merkle;
pub mod postings;
pub mod replay;
pub mod report;
pub mod seal;
mod sealed;
pub mod totals;
pub mod verify;
pub mod walk;
