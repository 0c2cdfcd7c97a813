//! paidonce-worker
