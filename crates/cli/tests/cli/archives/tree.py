# The tree that is put into archives, made in the current directory: one directory for each thing that a format may lack.
import os, stat, subprocess

def write(path, content=b"", mode=0o644):
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)

def run(*words):
    subprocess.run(words, check=True)

# What every format has.
os.makedirs("plain/deep/er")
write("plain/deep/file", bytes(range(256)) * 400)
write("plain/deep/er/empty")
for length in (1, 511, 512, 513, 10240):
    write(f"plain/of-{length}", b"x" * length)
write("plain/special", b"#!", 0o6751)
os.chmod("plain/deep", 0o1777)
os.chmod("plain/deep/er", 0o2750)
os.chown("plain/deep/er", 1, 1)
os.chown("plain/of-1", 1234, 4321)
os.symlink("../nowhere/at all", "plain/link")
os.symlink("/plain/deep", "plain/absolute")
os.link("plain/deep/file", "plain/again")
os.link("plain/deep/file", "plain/deep/er/third")
write("plain/a name with\nnewline, \\ and \"quotes\"")
write("plain/sticky", b"", 0o1600)
write("plain/nothing", b"", 0)
write("plain/-dash")

# What is not in an archive of Unix 7.
os.mkdir("nodes")
os.mkfifo("nodes/fifo", 0o622)
os.mknod("nodes/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
os.mknod("nodes/disk", stat.S_IFBLK | 0o660, os.makedev(259, 70000))
os.mknod("nodes/largest", stat.S_IFCHR | 0o600, os.makedev(511, 262143))
os.link("nodes/null", "nodes/null again")
os.link("nodes/fifo", "nodes/pipe")
os.link("plain/link", "nodes/link", follow_symlinks=False)

# Between 100 and 256 bytes: in two fields of a header of POSIX.
os.makedirs("split/" + "p" * 90)
write("split/" + "p" * 90 + "/" + "n" * 90, b"two fields")
write("split/" + "p" * 93, b"a hundred bytes less one")
write("split/" + "q" * 94, b"a hundred bytes")

# What needs longer names than that.
deep = "long"
while len(deep) < 3700:
    deep += "/" + chr(ord("a") + len(deep) // 200) * 199
os.makedirs(deep)
write(deep + "/" + "f" * 90, b"far below")
os.link(deep + "/" + "f" * 90, "long/linked")
os.link(deep + "/" + "f" * 90, deep + "/linked")
os.symlink("t" * 1000, "long/target")
write("long/" + "n" * 255)

# Names of other bytes than text.
os.mkdir("bytes")
write(b"bytes/\xff\xfe not text", b"1")
write("bytes/\u00e9\u4e2d\U0001f600", b"2")
write(b"bytes/\x01\x7f\t", b"3")
os.symlink(b"\xf0\x28 target", b"bytes/\xc3\x28 link")
os.link(b"bytes/\xff\xfe not text", b"bytes/\xfd linked")

# Numbers beyond the octal digits of a header.
os.mkdir("wide")
write("wide/owner", b"3")
os.chown("wide/owner", 3000000000, 4294967290)
write("wide/edge", b"2")
os.chown("wide/edge", 2097151, 2097152)

# Times before 1970, between seconds, and beyond 33 bits.
os.mkdir("times")
for name, ns in (
    ("before", -1_500_000_000), ("1901", -2_147_483_648_000_000_000), ("just before", -1), ("zero", 0),
    ("fraction", 1_700_000_000_123_456_789), ("2038", 2_147_483_648_000_000_001), ("2400", 13_569_465_600_000_000_000),
):
    write("times/" + name)
    os.utime("times/" + name, ns=(ns, ns))
os.symlink("fraction", "times/link")
os.utime("times/link", ns=(5, 1_600_000_000_987_654_321), follow_symlinks=False)
os.mkdir("times/of a directory")
os.utime("times/of a directory", ns=(7, 999_999_999))

# Holes.
os.mkdir("sparse")
for name, size, parts in (
    ("hole", 1 << 20, []),
    ("begins with one", 300_000, [(262_144, b"x" * 37_856)]),
    ("ends with one", 300_000, [(0, b"y" * 5000)]),
    ("many", 2 << 20, [(at << 14, bytes([at + 1]) * 4096) for at in range(100)]),
    ("odd", 200_001, [(131_072, b"odd"), (200_000, b"z")]),
):
    with open("sparse/" + name, "wb") as file:
        for at, content in parts:
            os.pwrite(file.fileno(), content, at)
        os.ftruncate(file.fileno(), size)
os.link("sparse/many", "sparse/many again")

# Attributes, lists and capabilities; a list that names a user by its name.
os.mkdir("attributes")
for name in ("file", "program", "listed", "masked", "by name", "labelled"):
    write("attributes/" + name, name.encode())
os.mkdir("attributes/dir")
os.mkdir("attributes/dir/below")
write("attributes/dir/file")
os.symlink("file", "attributes/link")
os.mkfifo("attributes/fifo")
os.chown("attributes/file", 1, 1)
for path, name, value in (
    ("file", "user.note", b"hello"), ("file", "user.empty", b""), ("file", "user.binary", bytes(range(256))),
    ("file", "user.with=equals", b"a\nb=c\n"), ("file", "user.\u00e9", b"e"), ("file", "trusted.secret", b"\0\1\377"),
    ("file", "user.long", b"l" * 2000), ("dir", "user.dir", b"d"), ("link", "trusted.link", b"t"),
    ("fifo", "trusted.fifo", b"f"), ("labelled", "security.selinux", b"system_u:object_r:etc_t:s0\0"),
):
    os.setxattr("attributes/" + path, name, value, follow_symlinks=False)
os.chmod("attributes/program", 0o4755)
run("setcap", "cap_net_raw,cap_chown+ep", "attributes/program")
run("setfacl", "-m", "u:77:rx,g:88:w", "attributes/listed")
run("setfacl", "-m", "u:4000000000:rwx,m::r", "attributes/masked")
run("setfacl", "-m", "u:1:rwx,g:1:-", "attributes/by name")
run("setfacl", "-d", "-m", "u:77:rwx,g::-", "attributes/dir")
os.chmod("attributes/dir", 0o2775)
