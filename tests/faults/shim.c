/* Fault injection in the C library: the N-th call on a file below a folder fails.
 *
 * Loaded with LD_PRELOAD by `make faults`, and controlled through `faults_arm`. A
 * simulated kill makes all later calls fail without an effect: the disk stays as
 * SIGKILL would leave it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NEVER, ONCE, FULL_DISK, SHORT, KILL };
enum { READS, WRITES };

static char root[4096];
static long at, count;
static int mode, code;
static char is_ours[1 << 16]; /* descriptors of files below the root */

/* Makes the call `number`, from 1, fail with `error`. */
void faults_arm(const char *folder, long number, int how, int error) {
  snprintf(root, sizeof root, "%s", folder);
  memset(is_ours, 0, sizeof is_ours);
  at = number, mode = how, code = error, count = 0;
}

long faults_count(void) { return count; }

static int below(const char *path) {
  return root[0] && path && strncmp(path, root, strlen(root)) == 0;
}

static int owned(int fd) {
  return fd >= 0 && fd < (int)sizeof is_ours && is_ours[fd];
}

static void own(int fd, int value) {
  if (fd >= 0 && fd < (int)sizeof is_ours) is_ours[fd] = value;
}

static int concerns(int dirfd, const char *path) {
  return below(path) || (path && path[0] != '/' && owned(dirfd));
}

/* Counts a call; whether it fails, with `errno` set. */
static int fails(int kind) {
  count++;
  if (mode == NEVER || count < at) return 0;
  if (mode == ONCE && count > at) return 0;
  if (mode == SHORT || (mode == FULL_DISK && kind != WRITES)) return 0;
  errno = code;
  return 1;
}

#define REAL(result, name, ...) \
  static result (*real)(__VA_ARGS__); \
  if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int creates(int flags) { return flags & (O_CREAT | O_TRUNC) ? WRITES : READS; }

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(int, #name, const char *, int, ...); \
    va_list list; va_start(list, flags); \
    int bits = va_arg(list, int); va_end(list); \
    if (!below(path)) return real(path, flags, bits); \
    if (fails(creates(flags))) return -1; \
    int fd = real(path, flags, bits); own(fd, 1); return fd; }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
  int name(int dirfd, const char *path, int flags, ...) { \
    REAL(int, #name, int, const char *, int, ...); \
    va_list list; va_start(list, flags); \
    int bits = va_arg(list, int); va_end(list); \
    if (!concerns(dirfd, path)) return real(dirfd, path, flags, bits); \
    if (fails(creates(flags))) return -1; \
    int fd = real(dirfd, path, flags, bits); own(fd, 1); return fd; }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  if (!owned(fd)) return real(fd, data, size);
  int failed = fails(WRITES), error = errno;
  if (count == at && (mode == SHORT || mode == KILL)) {
    ssize_t written = real(fd, data, (size + 1) / 2);
    if (mode == SHORT) return written;
  }
  if (failed) { errno = error; return -1; }
  return real(fd, data, size);
}

ssize_t read(int fd, void *data, size_t size) {
  REAL(ssize_t, "read", int, void *, size_t);
  if (!owned(fd)) return real(fd, data, size);
  if (fails(READS)) return -1;
  if (mode == SHORT && count == at && size > 1) size /= 2;
  return real(fd, data, size);
}

int close(int fd) {
  REAL(int, "close", int);
  if (!owned(fd)) return real(fd);
  own(fd, 0);
  int failed = fails(READS), error = errno, result = real(fd);
  if (!failed) return result;
  errno = error;
  return -1;
}

#define BY_FD(name, kind) \
  int name(int fd) { \
    REAL(int, #name, int); \
    return owned(fd) && fails(kind) ? -1 : real(fd); }
BY_FD(fsync, WRITES)
BY_FD(fdatasync, WRITES)

#define TRUNCATE(name, type) \
  int name(int fd, type size) { \
    REAL(int, #name, int, type); \
    return owned(fd) && fails(WRITES) ? -1 : real(fd, size); }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SEEK(name, type) \
  type name(int fd, type offset, int whence) { \
    REAL(type, #name, int, type, int); \
    return owned(fd) && fails(READS) ? -1 : real(fd, offset, whence); }
SEEK(lseek, off_t)
SEEK(lseek64, off64_t)

int flock(int fd, int operation) {
  REAL(int, "flock", int, int);
  return owned(fd) && fails(READS) ? -1 : real(fd, operation);
}

#define STAT(name, type) \
  int name(const char *path, type *result) { \
    REAL(int, #name, const char *, type *); \
    return below(path) && fails(READS) ? -1 : real(path, result); }
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)

#define FSTAT(name, type) \
  int name(int fd, type *result) { \
    REAL(int, #name, int, type *); \
    return owned(fd) && fails(READS) ? -1 : real(fd, result); }
FSTAT(fstat, struct stat)
FSTAT(fstat64, struct stat64)

int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  return below(to) && fails(WRITES) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t bits) {
  REAL(int, "mkdir", const char *, mode_t);
  return below(path) && fails(WRITES) ? -1 : real(path, bits);
}

#define BY_PATH(name) \
  int name(const char *path) { \
    REAL(int, #name, const char *); \
    return below(path) && fails(READS) ? -1 : real(path); }
BY_PATH(unlink)
BY_PATH(rmdir)

int unlinkat(int dirfd, const char *path, int flags) {
  REAL(int, "unlinkat", int, const char *, int);
  return concerns(dirfd, path) && fails(READS) ? -1 : real(dirfd, path, flags);
}

DIR *opendir(const char *path) {
  REAL(DIR *, "opendir", const char *);
  return below(path) && fails(READS) ? NULL : real(path);
}
