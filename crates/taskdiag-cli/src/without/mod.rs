//! What this program has instead of a command whose feature it was built without.

/// Defines, in the module of a command, one that is not listed, takes any arguments, and says how to
/// get it.
macro_rules! without {
    ($command:literal, $feature:literal) => {
        #[derive(Debug, clap::Args)]
        #[command(about = concat!("Not in this build, which lacks the feature ", $feature))]
        #[command(hide = true, disable_help_flag = true)]
        pub struct Args {
            #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
            _any: Vec<std::ffi::OsString>,
        }

        /// Runs the command.
        pub fn run(_: impl Sized) -> Result<crate::outcome::Outcome, crate::outcome::Failure> {
            let (command, feature) = ($command, $feature);
            let message = format!(
                "{command}: this taskdiag was built without the feature {feature} (cargo build --package taskdiag-cli \
                 --features {feature})"
            );
            Err(message.into())
        }
    };
}

#[cfg(not(feature = "history"))]
pub mod history;

#[cfg(not(feature = "history"))]
pub mod record {
    without!("record", "history");
}

#[cfg(not(feature = "history"))]
pub mod report {
    without!("report", "history");
}

#[cfg(not(feature = "metrics"))]
pub mod metrics {
    without!("metrics", "metrics");
}

#[cfg(not(feature = "top"))]
pub mod top {
    without!("top", "top");
}
