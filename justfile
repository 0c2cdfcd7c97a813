# Every command of this repository. `just` is optional: each recipe is the plain command it prints.

# Lists the recipes.
default:
    @just --list

# Shows the whole thing in one table: temporary SQLite ledger, test keys, both channels, a hundred copies.
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# Everything that must hold, on SQLite and PostgreSQL.
test *ARGS:
    cargo test --workspace {{ARGS}}

# One crate's tests.
test-crate CRATE *ARGS:
    cargo test -p {{CRATE}} {{ARGS}}

# Vectors from another folder of the same format.
vectors DIR:
    PAIDONCE_VECTORS={{DIR}} cargo test --workspace vectors

# Case scripts from another folder; prints what happened as JSON, one line a case.
cases DIR:
    PAIDONCE_CASES={{DIR}} cargo test -p paidonce-tests --test it -- cases --nocapture

# Notifications signed by other people's code (needs python3 with venv, node, npm and hledger).
interop:
    cargo build -p paidonce-tests --bin paidonce-under-test
    tests/interop/run target/debug/paidonce-under-test

# What CI runs, in its order.
ci:
    .ci/run

# Formats all code.
fmt:
    cargo fmt --all

# Formatting, lints and docs, as CI checks them.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items

# Starts the ledger with ./paidonce.toml.
serve *ARGS:
    cargo run --release -- serve {{ARGS}}

# A hundred copies of each of many callbacks against a running ledger whose keys we have.
storm *ARGS:
    cargo run --release -- storm {{ARGS}}

# Applies migrations to the configured database.
migrate *ARGS:
    cargo run --release -- migrate {{ARGS}}

# Reports everything that is wrong with a configuration file.
config-check *ARGS:
    cargo run --release -- config check {{ARGS}}

# Orders, items, effects, subscribers, import and copy by hand: `just cli items list`.
cli *ARGS:
    cargo run --release -- {{ARGS}}

# A thousand orders, each with a callback storm and a query storm at once (a normal test run plays fewer).
race-full:
    PAIDONCE_RACE_ORDERS=1000 cargo test -p paidonce-tests --test it query_storm -- --nocapture

# A day of two thousand orders against the sandbox, with everything that goes wrong in a day.
day-full:
    PAIDONCE_DAY_ORDERS=2000 cargo test -p paidonce-tests --test it fast_motion -- --nocapture
