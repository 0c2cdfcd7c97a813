//! Progress of long work: on standard error, and only when that is a terminal.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use paidonce_app::audit::report::{OnProgress, Progress};

/// A bar with rate and time left.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// What is counted: `events`.
    #[must_use]
    pub fn new(unit: &str) -> Self {
        let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left");
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(0).with_style(style))
    }

    /// For the use cases.
    #[must_use]
    pub fn on_progress(self: &Arc<Self>) -> OnProgress {
        let bar = Arc::clone(self);
        Arc::new(move |Progress { events, total }| {
            bar.0.set_length(total);
            bar.0.set_position(events);
        })
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
