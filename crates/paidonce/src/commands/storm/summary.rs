//! What a storm found: verdicts, latencies, answers.

use std::collections::BTreeMap;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use serde::Serialize;

/// One thing that must hold for every order (or copy).
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// In words.
    pub what: String,
    /// How many must fulfil it.
    pub expected: u64,
    /// How many do.
    pub found: u64,
    /// Whether that is all of them.
    pub holds: bool,
    /// Some that don't.
    pub examples: Vec<String>,
}

/// Examples of what does not hold; more would not help.
const EXAMPLES_MAX: usize = 5;

impl Verdict {
    /// Counts the names that fulfil something.
    pub fn count<'a>(what: &str, all: impl Iterator<Item = (&'a str, Option<String>)>) -> Self {
        let (mut expected, mut found, mut examples) = (0_u64, 0_u64, Vec::new());
        for (name, problem) in all {
            expected = expected.saturating_add(1);
            match problem {
                None => found = found.saturating_add(1),
                Some(problem) if examples.len() < EXAMPLES_MAX => examples.push(format!("{name}: {problem}")),
                Some(_) => {}
            }
        }
        Self { what: what.to_owned(), expected, found, holds: found == expected, examples }
    }

    /// Two figures that must be equal.
    #[must_use]
    pub fn equal(what: &str, found: u64, expected: u64) -> Self {
        Self { what: what.to_owned(), expected, found, holds: found == expected, examples: Vec::new() }
    }
}

/// Time from sending to answer.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Microseconds, half are faster.
    pub p50_us: u64,
    /// Microseconds.
    pub p90_us: u64,
    /// Microseconds.
    pub p99_us: u64,
    /// Microseconds.
    pub p999_us: u64,
    /// Microseconds, the slowest.
    pub max_us: u64,
}

impl Latency {
    /// Reads the percentiles.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self { p50_us: at(0.5), p90_us: at(0.9), p99_us: at(0.99), p999_us: at(0.999), max_us: histogram.max() }
    }
}

/// The whole storm.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// What was done, in one sentence.
    pub what: String,
    /// How long sending took, milliseconds; sealing and signing of the copies included.
    pub sending_ms: u64,
    /// Callbacks answered per second of sending.
    pub per_second: u64,
    /// Of the callbacks.
    pub latency: Latency,
    /// Answers by status, resends too.
    pub answers: BTreeMap<String, u64>,
    /// What must hold.
    pub verdicts: Vec<Verdict>,
    /// Worth knowing, nothing wrong.
    pub notes: Vec<String>,
    /// Whether everything holds.
    pub holds: bool,
}

impl Summary {
    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header(["must hold", "expected", "found", "verdict"]);
        for verdict in &self.verdicts {
            let word = if verdict.holds { "holds" } else { "FAILS" };
            table.add_row([&verdict.what, &verdict.expected.to_string(), &verdict.found.to_string(), word]);
        }
        for column in [1, 2] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let Latency { p50_us, p90_us, p99_us, p999_us, max_us } = self.latency;
        let answers: Vec<String> = self.answers.iter().map(|(answer, count)| format!("{answer}: {count}")).collect();
        let mut text = format!(
            "{}\n{table}\nanswers      {}\nlatency      p50 {}  p90 {}  p99 {}  p99.9 {}  max {}\nrate         {} callbacks/s over {} ms, signing included\n",
            self.what,
            answers.join(", "),
            millis(p50_us),
            millis(p90_us),
            millis(p99_us),
            millis(p999_us),
            millis(max_us),
            self.per_second,
            self.sending_ms,
        );
        for note in &self.notes {
            text.push_str(&format!("note         {note}\n"));
        }
        for verdict in &self.verdicts {
            for example in &verdict.examples {
                text.push_str(&format!("FAILS        {}: {example}\n", verdict.what));
            }
        }
        text.push_str(if self.holds { "Everything holds.\n" } else { "NOT everything holds.\n" });
        text
    }
}

/// `12.3 ms`, without floating point.
fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros.div_euclid(1_000), micros.rem_euclid(1_000).div_euclid(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_names_some_of_those_that_fail() {
        let all = [("A", None), ("B", Some("2 rows".to_owned())), ("C", None)];
        let verdict = Verdict::count("one row each", all.into_iter());
        assert_eq!((verdict.found, verdict.expected, verdict.holds), (2, 3, false));
        assert_eq!(verdict.examples, ["B: 2 rows"]);
    }

    #[test]
    fn microseconds_are_shown_as_milliseconds() {
        assert_eq!((millis(999), millis(12_345)), ("0.9 ms".to_owned(), "12.3 ms".to_owned()));
    }
}
