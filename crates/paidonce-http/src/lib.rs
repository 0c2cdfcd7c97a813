//! paidonce-http
