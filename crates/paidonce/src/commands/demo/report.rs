//! What the demo found: one table for people, one JSON document for programs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// One act as it went.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What the platform told.
    pub what: String,
    /// Callbacks sent.
    pub sent: u64,
    /// Callbacks that got the platform's success answer.
    pub acknowledged: u64,
    /// Sent once more because no final answer came.
    pub resent: u64,
    /// New rows of `events`.
    pub events: i64,
    /// New rows of `t_idempotent`.
    pub t_idempotent: i64,
    /// Status in `t_order` before and after.
    pub t_order: String,
    /// New rows of `t_order_flow`.
    pub t_order_flow: i64,
    /// Deliveries to the warehouse.
    pub warehouse: u64,
    /// Whether all is as it must be.
    pub holds: bool,
    /// What is not, in words.
    pub problems: Vec<String>,
}

/// The whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `SQLite` or `PostgreSQL`.
    pub database: &'static str,
    /// Callbacks of every act on the way at once.
    pub concurrency: usize,
    /// One line an act.
    pub lines: Vec<Line>,
    /// Events in the whole log, read through the feed without a hole.
    pub log_events: usize,
    /// Deliveries that the warehouse refused to believe, and repeats of what it knew.
    pub warehouse_refused: u64,
    /// See above.
    pub warehouse_repeats: u64,
    /// Whether everything holds.
    pub holds: bool,
}

const EXPLANATION: &str = "\
Platforms send a payment's callback again until it is acknowledged, so a shop sees it many times, often at once. Each line
below is one thing that happened at a platform, told to the ledger in `sent` separately sealed and signed callbacks.
  acknowledged   answered with success: the fact is on disk     t_order_flow   rows of money that moved
  events         new facts in the log                           warehouse      messages to the merchant's own service
  t_idempotent   keys by which a repeat is known                t_order        the order's status, before and after
";

impl Report {
    /// For people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header([
            "what happened",
            "sent",
            "acknowledged",
            "events",
            "t_idempotent",
            "t_order",
            "t_order_flow",
            "warehouse",
            "verdict",
        ]);
        for line in &self.lines {
            table.add_row([
                line.what.clone(),
                line.sent.to_string(),
                line.acknowledged.to_string(),
                plus(line.events),
                plus(line.t_idempotent),
                line.t_order.clone(),
                plus(line.t_order_flow),
                line.warehouse.to_string(),
                if line.holds { "holds".to_owned() } else { "FAILS".to_owned() },
            ]);
        }
        for column in [1, 2, 3, 4, 6, 7] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        format!("{EXPLANATION}\n{table}\n{}", self.summary())
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        for line in self.lines.iter().filter(|line| !line.holds) {
            text.push_str(&format!("FAILS: {}: {}\n", line.what, line.problems.join("; ")));
        }
        let sent: u64 = self.lines.iter().map(|line| line.sent).sum();
        let events: i64 = self.lines.iter().map(|line| line.events).sum();
        text.push_str(&format!(
            "{sent} callbacks, {} at a time, on {}: {events} events. The log was read back from its beginning: {} events, no hole.\n",
            self.concurrency, self.database, self.log_events
        ));
        let resent: u64 = self.lines.iter().map(|line| line.resent).sum();
        if resent > 0 {
            text.push_str(&format!("{resent} were sent again, because no final answer came in time.\n"));
        }
        if self.warehouse_refused > 0 || self.warehouse_repeats > 0 {
            text.push_str(&format!(
                "The warehouse refused {} deliveries and was told {} again.\n",
                self.warehouse_refused, self.warehouse_repeats
            ));
        }
        text.push_str(if self.holds { "Everything holds.\n" } else { "NOT everything holds.\n" });
        text
    }
}

fn plus(count: i64) -> String {
    if count == 0 { "0".to_owned() } else { format!("{count:+}") }
}
