//! The harness itself: a private PostgreSQL that is really durable and really private.

use paidonce_tests::postgres;

#[test]
fn every_database_is_new_and_fsync_is_on() {
    let (one, two) = (postgres::fresh_database(), postgres::fresh_database());
    assert_ne!(one, two);
    postgres::execute(&one, "CREATE TABLE only_here (n bigint)");
    assert!(postgres::try_execute(&two, "SELECT * FROM only_here").is_err());
    assert_eq!(postgres::count(&one, "SELECT count(*) FROM pg_settings WHERE name = 'fsync' AND setting = 'on'"), 1);
}

#[test]
fn a_private_cluster_survives_a_power_cut_with_what_was_committed() {
    let cluster = postgres::Cluster::start();
    let url = cluster.fresh_database();
    postgres::execute(&url, "CREATE TABLE kept (n bigint); INSERT INTO kept VALUES (1)");
    cluster.stop_immediately();
    assert!(postgres::try_execute(&url, "SELECT 1").is_err());
    cluster.start_again();
    assert_eq!(postgres::count(&url, "SELECT count(*) FROM kept"), 1);
    assert_eq!(cluster.terminate_backends(&url), 0);
}

#[test]
fn a_migrated_database_is_a_copy_with_the_whole_schema() {
    let (one, two) = (postgres::migrated_database(), postgres::migrated_database());
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres")).unwrap();
    let migrations = i64::try_from(folder.count()).unwrap();
    for url in [one, two] {
        assert_eq!(postgres::count(&url, "SELECT count(*) FROM t_log_head"), 64);
        assert_eq!(postgres::count(&url, "SELECT count(*) FROM t_migration"), migrations);
    }
}
