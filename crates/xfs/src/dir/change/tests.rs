//! Random changes of directories, against a model.
