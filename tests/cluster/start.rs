//! The operator and a real API server that is not always there.

use std::time::Duration;

use crate::support::{ControlPlane, Env, SOON};

#[test]
fn an_operator_started_before_a_real_api_server_becomes_ready_with_it() {
    let plane = ControlPlane::own();
    plane.stop_apiserver();
    let env = Env::new().quiet_hook().kubeconfig(&plane.admin());
    let mut operator = env.start();
    operator.wait_alive();
    let answer = operator.readyz().unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    plane.start_apiserver();
    // The requirement itself: within five seconds of the API server coming up.
    operator.wait_ready_for(Duration::from_secs(5));

    // It goes away again: nothing ends.
    plane.stop_apiserver();
    operator.wait_alive();
    assert!(operator.is_running());
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
}
