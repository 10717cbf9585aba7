// SPDX-License-Identifier: Apache-2.0
//
// An object of each thread that asks for it. Unlike a `thread_local` object it is there for as long as the thread runs
// any code: also in the program's `atexit` handlers, in the destructors of its static and of its `thread_local`
// objects, and in those of its pthread keys. All of these may call the library, and most of them run after
// `thread_local` objects are gone.
#pragma once

#include <pthread.h>

namespace memfabric {

// One object for each thread and each `Object`, which is a type of its own for each use. The thread frees it with its
// pthread keys, and again what such destructors made anew; that of the main thread goes with the process.
template <typename Object>
class PerThread {
public:
    static Object* find() { return object_; }  // nullptr: this thread has none yet

    static Object& get() {
        if (object_ == nullptr) [[unlikely]]
            make();
        return *object_;
    }

private:
    [[gnu::cold, gnu::noinline]] static void make() {
        static const Key key;
        object_ = new Object;
        if (key.is_there) pthread_setspecific(key.key, object_);  // else it is freed with the process
    }

    struct Key {
        static void free(void* object) {
            object_ = nullptr;
            delete static_cast<Object*>(object);
        }
        pthread_key_t key{};  // never deleted: threads end at any time
        const bool is_there = pthread_key_create(&key, free) == 0;
    };

    static constinit thread_local Object* object_;
};

template <typename Object>
constinit thread_local Object* PerThread<Object>::object_ = nullptr;

}  // namespace memfabric
