//! Input that asks for more than there is: whole commands stay within their memory and time, and do not panic.

use flashscope_tests::{flashscope, output};

#[test]
fn the_removed_command_names_what_is_there_instead() {
    let tried = output(flashscope().args(["policy", "trace.dat", "--latency-ms", "2"]));
    let stderr = String::from_utf8_lossy(&tried.stderr);
    assert_eq!(tried.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("flashscope: policy was removed in 0.2.0"), "{stderr}");
    assert!(stderr.contains("flashscope advise TRACE") && stderr.contains("flashscope predict TRACE"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
