//! A list of options as mount(8) hands it over, in terms of `undercroft mount`: its flags are options here.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::mount_options::{Meaning, meaning, refusal};

/// A list of mount(8)'s, in terms of `undercroft mount`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HelperOptions {
    /// What stands after `-o` of `undercroft mount`.
    pub(super) list: Vec<String>,
    /// Its flags.
    pub(super) snapshot: bool,
    pub(super) allow_backing: bool,
    pub(super) log: Option<PathBuf>,
    pub(super) monitor: Option<PathBuf>,
    /// That the image is not there is no failure.
    pub(super) nofail: bool,
}

impl HelperOptions {
    /// # Errors
    /// An option that is refused, unless the caller is `sloppy`.
    pub(super) fn parse(lists: &[String], sloppy: bool) -> Result<Self, Failure> {
        let mut found = Self { list: vec!["rw".to_owned()], ..Self::default() };
        for option in lists.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("log", file)) => found.log = Some(file.into()),
                Some(("monitor", program)) => found.monitor = Some(program.into()),
                _ if option == "snapshot" => found.snapshot = true,
                _ if option == "allow_backing" => found.allow_backing = true,
                _ if option == "nofail" => found.nofail = true,
                _ => found.add(option, sloppy)?,
            }
        }
        Ok(found)
    }

    fn add(&mut self, option: &str, sloppy: bool) -> Result<(), Failure> {
        match meaning(option) {
            Meaning::Ours => self.list.push(option.to_owned()),
            Meaning::Is(word) => self.list.push(word.to_owned()),
            Meaning::Ignored | Meaning::Hint => {}
            Meaning::Refused(_) | Meaning::Unknown if sloppy => {}
            meaning @ (Meaning::Refused(_) | Meaning::Unknown) => return Err(refusal(option, meaning)),
        }
        Ok(())
    }

    /// Puts in front what a mount of any other type has: times of access, and as root device nodes, set-user-ID programs and
    /// access for all users.
    pub(super) fn add_defaults(&mut self, is_root: bool) {
        let is_private =
            self.list.iter().any(|option| option == "fakeroot" || option == "no_default_permissions");
        let mut defaults = vec!["relatime"];
        if is_root {
            defaults.extend(["dev", "suid"]);
            defaults.extend((!is_private).then_some("allow_other"));
        }
        self.list.splice(0..0, defaults.into_iter().map(str::to_owned));
    }

    /// Of `ro` and `rw` the last counts.
    pub(super) fn is_read_only(&self) -> bool {
        self.list
            .iter()
            .rev()
            .find(|option| *option == "ro" || *option == "rw")
            .is_some_and(|last| last == "ro")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Kind;

    fn parse(list: &str) -> Result<HelperOptions, Failure> {
        HelperOptions::parse(&[list.to_owned()], false)
    }

    #[test]
    fn words_for_mount_and_systemd_are_ignored() {
        let list = "defaults,nofail,noauto,user=nobody,users,owner,_netdev,x-systemd.automount,X-mount.mkdir,comment=a,acl,\
            user_xattr,errors=remount-ro,data=ordered,nodiratime,auto_unmount,,loop";
        let found = parse(list).unwrap();
        assert_eq!(found.list, ["rw"]);
        assert!(found.nofail && !parse("defaults").unwrap().nofail);
    }

    #[test]
    fn options_that_linux_would_act_on_are_refused_by_name() {
        for option in [
            "remount",
            "errors=panic",
            "errors=continue",
            "data=journal",
            "data=writeback",
            "nobarrier",
            "barrier=0",
            "noacl",
            "nouser_xattr",
            "strictatime",
            "dirsync",
            "mand",
            "nosymfollow",
            "allow_root",
        ] {
            let failure = parse(&format!("rw,{option}")).unwrap_err();
            assert_eq!(failure.kind(), Kind::Usage);
            assert!(failure.to_string().contains(&format!("\"{option}\"")), "{failure}");
            assert_eq!(HelperOptions::parse(&[option.to_owned()], true).unwrap().list, ["rw"]);
        }
    }

    #[test]
    fn flags_of_our_mount_are_options() {
        let found = parse("ro,snapshot,allow_backing,log=/l,monitor=/m,atime,uid=5").unwrap();
        assert_eq!(found.list, ["rw", "ro", "relatime", "uid=5"]);
        assert!(found.snapshot && found.allow_backing && found.is_read_only());
        assert_eq!((found.log, found.monitor), (Some("/l".into()), Some("/m".into())));
        assert!(!parse("ro,rw").unwrap().is_read_only() && !parse("").unwrap().is_read_only());
    }

    #[test]
    fn a_mount_of_roots_is_open_to_all_users() {
        let with = |list: &str, is_root| {
            let mut found = parse(list).unwrap();
            found.add_defaults(is_root);
            found.list.join(",")
        };
        assert_eq!(with("nosuid", true), "relatime,dev,suid,allow_other,rw,nosuid");
        assert_eq!(with("nosuid", false), "relatime,rw,nosuid");
        assert_eq!(with("fakeroot", true), "relatime,dev,suid,rw,fakeroot");
    }
}
