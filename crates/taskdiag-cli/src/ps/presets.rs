//! The predefined formats of ps(1), as lists of specifiers.

/// The options that choose a predefined format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preset {
    /// The options with a dash. They can be combined.
    pub unix: Unix,
    /// A format in BSD style.
    pub bsd: Option<Bsd>,
    /// `-O`: the usual columns, with others inserted.
    pub preloaded: Option<String>,
    /// `-L`: adds LWP, and in full formats NLWP.
    pub lwp: bool,
    /// `-T`: adds SPID.
    pub spid: bool,
}

/// Options with a dash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unix {
    /// `-f`.
    pub full: bool,
    /// `-F`, with `-f`.
    pub extra: bool,
    /// `-l`.
    pub long: bool,
    /// `-y`, with `-l`.
    pub short_long: bool,
    /// `-j`.
    pub jobs: bool,
    /// `-c`.
    pub class: bool,
    /// `-P`.
    pub processor: bool,
    /// `-M`, `-Z`.
    pub label: bool,
}

taskdiag_core::named_enum! {
    /// Formats in BSD style, with the options that choose them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bsd {
        User => "u",
        Long => "l",
        Jobs => "j",
        Memory => "v",
        Signals => "s",
        Registers => "X",
        Context => "--context",
    }
    impl Display;
}

/// A column of a predefined format: the specifier, and its width if that differs from the usual
/// one.
pub type PresetColumn = (&'static str, Option<usize>);

impl Preset {
    /// Whether any format was chosen.
    pub fn is_format(&self) -> bool {
        self.bsd.is_some() || self.unix != Unix::default() || self.lwp || self.spid
    }

    /// Rejects options that exclude each other.
    pub fn check(&self) -> Result<(), String> {
        let Unix {
            full,
            long,
            short_long,
            class,
            ..
        } = self.unix;
        if short_long && !long {
            return Err("-y changes the format -l: add -l".to_owned());
        }
        match self.bsd {
            Some(format) if full || long || class => Err(format!(
                "the format {format} does not go with -f, -F, -l and -c: leave out either"
            )),
            _ => Ok(()),
        }
    }

    /// The columns of the format. `is_bsd` means that some option was in BSD style.
    pub fn columns(&self, is_bsd: bool) -> Vec<PresetColumn> {
        let mut columns = match self.bsd {
            None if self.unix.full || self.unix.long || !is_bsd => self.unix_columns(is_bsd),
            bsd => self.bsd_columns(bsd),
        };
        if self.unix.label {
            columns.insert(0, ("label", None));
        }
        columns
    }

    fn unix_columns(&self, is_bsd: bool) -> Vec<PresetColumn> {
        let Unix {
            full,
            extra,
            long,
            short_long,
            jobs,
            class,
            processor,
            ..
        } = self.unix;
        let (time, command) = match (is_bsd, full) {
            (true, _) => ("bsdtime", "cmd"),
            (false, true) => ("time", "cmd"),
            (false, false) => ("time", "ucmd"),
        };
        let parts: &[(bool, &'static str)] = &[
            (long && !short_long, "f"),
            (long, "s"),
            (full, "uid_hack"),
            (long && !full, "uid"),
            (true, "pid"),
            (self.spid, "spid"),
            (full || long, "ppid"),
            (jobs, "pgid"),
            (jobs, "sid"),
            (self.lwp, "lwp"),
            (self.lwp && full && class, "nlwp"),
            (processor, "psr"),
            (class, "class"),
            (class, "pri"),
            ((full || long) && !class, "c"),
            (self.lwp && full && !class, "nlwp"),
            (long && !class, "opri"),
            (long && !class, "ni"),
            (long && short_long, "rss"),
            (long && !short_long, "addr"),
            (long, "sz"),
            (long, "wchan"),
            (extra && !long, "sz"),
            (extra && !(long && short_long), "rss"),
            (extra && !processor, "psr"),
            (full, "stime"),
            (true, "tname"),
            (is_bsd && !long, "stat"),
            (true, time),
            (true, command),
        ];
        let column = |&(is_there, name): &(bool, &'static str)| {
            // As in ps, ADDR is one character wide, and its header reaches into the column of SZ.
            is_there.then_some((name, (name == "addr").then_some(1)))
        };
        parts.iter().filter_map(column).collect()
    }

    fn bsd_columns(&self, format: Option<Bsd>) -> Vec<PresetColumn> {
        let names = match format {
            None => "pid tname stat bsdtime args",
            Some(Bsd::User) => "user pid %cpu %mem vsz rss tname stat start_time bsdtime args",
            Some(Bsd::Long) => "f uid pid ppid priority ni vsz rss wchan stat tname bsdtime args",
            Some(Bsd::Jobs) => "ppid pid pgid sid tname tpgid stat uid bsdtime args",
            Some(Bsd::Memory) => "pid tname stat bsdtime maj_flt m_trs drs rss %mem args",
            Some(Bsd::Signals) => "uid pid pending blocked ignored caught stat tname bsdtime args",
            Some(Bsd::Registers) => "pid stackp esp eip tmout alarm stat tname bsdtime args",
            Some(Bsd::Context) => "pid context args",
        };
        let mut names: Vec<&'static str> = names.split(' ').collect();
        let mut insert_after = |anchors: &[&str], inserted: &[&'static str]| {
            let found = anchors.iter().find_map(|name| names.iter().position(|has| has == name));
            if let Some(at) = found {
                names.splice(at + 1..at + 1, inserted.iter().copied());
            }
        };
        if self.unix.jobs {
            insert_after(&["ppid", "pid"], &["pgid", "sid"]);
        }
        if self.lwp {
            insert_after(&["%cpu"], &["nlwp"]);
            insert_after(&["sid", "ppid", "pid"], &["lwp"]);
        }
        if self.spid {
            insert_after(&["pid"], &["spid"]);
        }
        names.into_iter().map(|name| (name, None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(preset: &Preset, is_bsd: bool) -> String {
        let names: Vec<&str> = preset.columns(is_bsd).into_iter().map(|(name, _)| name).collect();
        names.join(" ")
    }

    fn unix(set: impl Fn(&mut Unix)) -> Preset {
        let mut preset = Preset::default();
        set(&mut preset.unix);
        preset
    }

    fn bsd(format: Bsd) -> Preset {
        Preset {
            bsd: Some(format),
            ..Preset::default()
        }
    }

    /// Check the formats with a dash, alone and combined, against Debian's ps.
    #[test]
    fn unix_formats_add_up() {
        let preset = |set: fn(&mut Unix)| names(&unix(set), false);
        assert_eq!(names(&Preset::default(), false), "pid tname time ucmd");
        assert_eq!(preset(|f| f.jobs = true), "pid pgid sid tname time ucmd");
        assert_eq!(preset(|f| f.class = true), "pid class pri tname time ucmd");
        assert_eq!(preset(|f| f.full = true), "uid_hack pid ppid c stime tname time cmd");
        assert_eq!(
            preset(|f| (f.full, f.extra) = (true, true)),
            "uid_hack pid ppid c sz rss psr stime tname time cmd"
        );
        assert_eq!(
            preset(|f| f.long = true),
            "f s uid pid ppid c opri ni addr sz wchan tname time ucmd"
        );
        assert_eq!(
            preset(|f| (f.long, f.short_long) = (true, true)),
            "s uid pid ppid c opri ni rss sz wchan tname time ucmd"
        );
        assert_eq!(
            preset(|f| (f.long, f.full, f.extra, f.short_long) = (true, true, true, true)),
            "s uid_hack pid ppid c opri ni rss sz wchan psr stime tname time cmd"
        );
        assert_eq!(
            preset(|f| (f.long, f.class) = (true, true)),
            "f s uid pid ppid class pri addr sz wchan tname time ucmd"
        );
        assert_eq!(
            preset(|f| (f.full, f.jobs, f.label) = (true, true, true)),
            "label uid_hack pid ppid pgid sid c stime tname time cmd"
        );
        assert_eq!(
            preset(|f| (f.full, f.extra, f.processor) = (true, true, true)),
            "uid_hack pid ppid psr c sz rss stime tname time cmd"
        );
    }

    /// Check that the formats for threads have their columns in the same places as ps.
    #[test]
    fn threads_have_columns_of_their_own() {
        let with = |preset: Preset, lwp, spid| Preset { lwp, spid, ..preset };
        let full = unix(|f| f.full = true);
        assert_eq!(
            names(&with(Preset::default(), true, false), false),
            "pid lwp tname time ucmd"
        );
        assert_eq!(
            names(&with(Preset::default(), false, true), false),
            "pid spid tname time ucmd"
        );
        assert_eq!(
            names(&with(full.clone(), true, false), false),
            "uid_hack pid ppid lwp c nlwp stime tname time cmd"
        );
        assert_eq!(
            names(&with(full, false, true), false),
            "uid_hack pid spid ppid c stime tname time cmd"
        );
        assert_eq!(
            names(&with(unix(|f| (f.full, f.class) = (true, true)), true, false), false),
            "uid_hack pid ppid lwp nlwp class pri stime tname time cmd"
        );
        assert_eq!(
            names(&with(bsd(Bsd::User), true, false), true),
            "user pid lwp %cpu nlwp %mem vsz rss tname stat start_time bsdtime args"
        );
        assert_eq!(
            names(&with(bsd(Bsd::Jobs), true, false), true),
            "ppid pid pgid sid lwp tname tpgid stat uid bsdtime args"
        );
        assert_eq!(
            names(&with(bsd(Bsd::Long), false, true), true),
            "f uid pid spid ppid priority ni vsz rss wchan stat tname bsdtime args"
        );
    }

    /// Check the effects of options in BSD style.
    #[test]
    fn bsd_options_change_formats() {
        assert_eq!(names(&Preset::default(), true), "pid tname stat bsdtime args");
        assert_eq!(
            names(&unix(|f| f.full = true), true),
            "uid_hack pid ppid c stime tname stat bsdtime cmd"
        );
        assert_eq!(
            names(&unix(|f| f.long = true), true),
            "f s uid pid ppid c opri ni addr sz wchan tname bsdtime cmd"
        );
        assert_eq!(
            names(&unix(|f| f.jobs = true), true),
            "pid pgid sid tname stat bsdtime args"
        );
        let user = bsd(Bsd::User);
        let jobs = Unix {
            jobs: true,
            ..Unix::default()
        };
        assert_eq!(
            names(&Preset { unix: jobs, ..user }, true),
            "user pid pgid sid %cpu %mem vsz rss tname stat start_time bsdtime args"
        );
        assert_eq!(
            names(
                &Preset {
                    unix: jobs,
                    ..bsd(Bsd::Long)
                },
                true
            ),
            "f uid pid ppid pgid sid priority ni vsz rss wchan stat tname bsdtime args"
        );
    }

    /// Check that invalid combinations are reported.
    #[test]
    fn some_formats_exclude_each_other() {
        assert!(unix(|f| f.short_long = true).check().is_err());
        assert!(unix(|f| (f.long, f.short_long) = (true, true)).check().is_ok());
        let both = Preset {
            unix: Unix {
                full: true,
                ..Unix::default()
            },
            ..bsd(Bsd::User)
        };
        assert!(both.check().is_err());
        assert!(bsd(Bsd::User).check().is_ok());
    }

    /// Check that all formats consist of existing specifiers.
    #[test]
    fn formats_are_made_of_specifiers() {
        use super::super::specifiers::Specifier;
        let all = Unix {
            full: true,
            extra: true,
            long: true,
            jobs: true,
            processor: true,
            label: true,
            ..Unix::default()
        };
        let formats = [
            None,
            Some(Bsd::User),
            Some(Bsd::Long),
            Some(Bsd::Jobs),
            Some(Bsd::Memory),
        ];
        let formats = formats
            .into_iter()
            .chain([Some(Bsd::Signals), Some(Bsd::Registers), Some(Bsd::Context)]);
        for bsd in formats {
            let preset = Preset {
                bsd,
                unix: if bsd.is_none() { all } else { Unix::default() },
                lwp: true,
                spid: true,
                preloaded: None,
            };
            for (name, _) in preset.columns(false) {
                assert!(Specifier::named(name).is_some(), "{name}");
            }
        }
    }
}
