//! paidonce-app
